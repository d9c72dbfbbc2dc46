create view parcels_lost as
select code from parcels_parcel where is_lost;
