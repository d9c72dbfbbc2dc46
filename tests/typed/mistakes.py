"""One mistake on each line that is marked, which mypy and pyright must reject. Checked by `test_typed.py`, not run."""

from __future__ import annotations

from datetime import timedelta

from duly import Attempt, Backoff, Daily, Duly, Limit

app = Duly("sqlite:///typed.db")


@app.task
def remind(phone: str, message: str = "") -> str:
    return phone + message


@app.task(retry=Backoff(tries=3))
async def look_up(sku: str, most: int = 1) -> float:
    return 1.0


@app.task
def export(attempt: Attempt, report: int) -> None: ...


@app.task
def odd(key: str) -> None: ...


remind.put(phon="+385")  # MISTAKE a wrong name
remind.put(phone=385)  # MISTAKE a wrong type
remind.put()  # MISTAKE a missing argument
remind.put(message="hi")  # MISTAKE a missing argument, another given
remind.put("+385", "hi", "more")  # MISTAKE too many by position
remind.put("+385", phone="+385")  # MISTAKE by position and by name
remind.put(phone="+385", key="a")  # MISTAKE an option among the arguments
remind.put(phone=None)  # MISTAKE None for text
look_up.put(sku="a", most="many")  # MISTAKE a wrong type of an async handler
look_up.put(1)  # MISTAKE a wrong type by position
export.put(report="one")  # MISTAKE a wrong type after the attempt
export.put(attempt=None, report=1)  # MISTAKE the attempt is the engine's
odd.put(key=1)  # MISTAKE an argument that is called like an option
remind.options(keyy="a")  # MISTAKE a wrong option
remind.options(key=7)  # MISTAKE a wrong type of an option
remind.options(tries="3").put("+385")  # MISTAKE another one
remind.options(delay="soon").put("+385")  # MISTAKE text for seconds
remind.options(key="a").put(phone=1)  # MISTAKE a wrong type behind options
remind.at(1_700_000_000).put("+385")  # MISTAKE a number for a time
remind.after("60").put("+385")  # MISTAKE text for seconds
remind.after(60).put(fone="+385")  # MISTAKE a wrong name behind a delay
remind.new(phone=1)  # MISTAKE a wrong type of an item that is not put
number: int = remind.put("+385").wait()  # MISTAKE a wrong type of the result
text: str = look_up.put("a").wait()  # MISTAKE the result of an async handler
remind.put("+385").wait(timeout="30")  # MISTAKE text for seconds
remind.put_many([1, 2])  # MISTAKE rows that are numbers
remind.put_many({"phone": "+385"})  # MISTAKE one row in place of many
remind.put_many([{"phone": "+385"}], key="a")  # MISTAKE options of put_many
app.job(remind, ["+385"])  # MISTAKE rows that are text
app.job(remind, [{"phone": "+385"}], thn=remind)  # MISTAKE a wrong option of a job
app.job(7, [{"phone": "+385"}])  # MISTAKE a number for a task
remind.every(7).put("+385")  # MISTAKE a number for a rule
remind.every(Daily("09:00"), zon="UTC").put("+385")  # MISTAKE a wrong option of a schedule
remind.every(Daily("09:00"), catch_up="some").put("+385")  # MISTAKE a choice that there is not
remind.every(Daily("09:00")).put(fone="+385")  # MISTAKE a wrong name in a schedule
remind.every(Daily("09:00"), phone="+385")  # MISTAKE an argument among the options of a schedule
app.schedules.create(remind, Daily("09:00"), key=7)  # MISTAKE a number for a key
app.schedules.create(remind, Daily("09:00"), key="a", phone="+385")  # MISTAKE arguments among options
app.schedules.create_many(remind, Daily("09:00"), [{"kee": "a"}])  # MISTAKE a row without a key
app.task(naem="x")  # MISTAKE a wrong policy
app.task(retry=3)  # MISTAKE a number for a policy
app.task(deadline="1m")  # MISTAKE text for seconds
app.task(limits=Limit("shop", "2"))  # MISTAKE text for a number
Duly(concurency=20)  # MISTAKE a wrong setting
Duly(concurrency="20")  # MISTAKE a wrong type of a setting
Duly(log_level=10)  # MISTAKE another one
Duly(listen=timedelta(seconds=1))  # MISTAKE and another


async def from_async_code() -> None:
    await app.acancel("1")  # MISTAKE text for the id of an item
    await app.aretry(1, dely=60)  # MISTAKE a wrong option
    await app.ajob(look_up, 3)  # MISTAKE a number for rows
    await app.read.aitem()  # MISTAKE a missing id
    async for row in app.find_job(1, task=look_up).aresults("WELL"):  # MISTAKE a status that there is not
        print(row)
    for _missing in app.find_job(1).aresults():  # MISTAKE an async stream in a plain loop
        ...
    await app.afind_job(key="march", task=3)  # MISTAKE a number for a task
