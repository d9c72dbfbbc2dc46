"""Products over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from duly.apps.catalog.capacity import Break, Plan
from duly.apps.catalog.day import Budget, CauseCount, Day, SlotDay, StatusCounts, WindowDay
from duly.apps.catalog.products import Product, Reactivated
from duly.web.schemas import Model, Out, Word, clean, example, fields_of


class ProductIn(Model):
    model_config = example(sku="65-12345-1")

    user_id: Word | None = Field(default=None, description="Whose product; others than yourself are for admins.")
    sku: Word


class ProductOut(Out):
    __annotations__ = fields_of(Product)


class ReactivateIn(Model):
    model_config = example(syncNow=True)

    sync_now: bool = Field(default=False, description="Sync it now too, not only from its next slot on.")


class ReactivateAllIn(ReactivateIn):
    model_config = example(cause="duly.outbound.http.TimedOut", syncNow=True)

    cause: Annotated[str, StringConstraints(max_length=200), AfterValidator(clean)] | None = Field(
        default=None, description="Only what this deactivated, as the day names it; without it, all."
    )


class ReactivatedOut(Out):
    __annotations__ = fields_of(Reactivated)


class SlotDayOut(Out):
    __annotations__ = fields_of(SlotDay)


class WindowDayOut(Out):
    __annotations__ = fields_of(WindowDay)


class BudgetOut(Out):
    __annotations__ = fields_of(Budget)


class StatusCountsOut(Out):
    __annotations__ = fields_of(StatusCounts)


class CauseCountOut(Out):
    __annotations__ = fields_of(CauseCount)


class DayOut(Out):
    __annotations__ = {
        **fields_of(Day),
        "slots": list[SlotDayOut],
        "windows": list[WindowDayOut],
        "budget": BudgetOut,
        "statuses": StatusCountsOut,
        "causes": list[CauseCountOut],
    }


class PlanIn(Model):
    model_config = example(products=5000)

    products: Annotated[int, Field(ge=0, le=10_000_000)] = 5_000
    batch: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=10, description="SKUs per call.")
    rate: Annotated[float, Field(gt=0, le=1e6)] = Field(default=2, description="Calls a minute.")
    slots: Annotated[int, Field(ge=1, le=86_400)] = Field(default=24, description="Slots a day.")
    windows: Annotated[int, Field(ge=0, le=86_400)] = Field(default=6, description="Retry windows a day.")
    cap: Annotated[int, Field(ge=0, le=1_000_000)] = Field(default=50, description="Products per retry window.")


class BreakOut(Out):
    __annotations__ = fields_of(Break)


class PlanOut(Out):
    __annotations__ = {
        **fields_of(Plan), "breaks_first": BreakOut | None, "breaks": tuple[BreakOut, ...],
    }  # fmt: skip
