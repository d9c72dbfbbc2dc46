-- Parcels that were sent.

create table parcels_parcel (
    code     text    primary key,
    is_lost  integer not null
);
