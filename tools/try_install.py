"""What `tools/release` runs in each fresh environment: duly from its wheel, as a new user meets it.

python -I trial.py VERSION plain|server
"""

import json
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

BIN = Path(sys.executable).parent
APP = """
from duly import Backoff, Duly

app = Duly()

@app.task(retry=Backoff(base=60, tries=3))
async def remind(phone: str, message: str) -> None:
    print(f"calling {phone}: {message}")

if __name__ == "__main__":
    with app.worker():
        remind.put(phone="+385 1 234", message="Dentist at 9").wait(timeout=60)
    app.close()
"""


def duly(*arguments: str) -> str:
    ran = subprocess.run([BIN / "duly", *arguments], capture_output=True, text=True, timeout=120)
    if ran.returncode:
        sys.exit(f"duly {' '.join(arguments)} exited with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def main(version: str, kind: str) -> None:
    if duly("--version") != f"duly {version}\n":
        sys.exit(f"duly --version printed {duly('--version')!r}")
    duly("--help")
    Path("app.py").write_text(textwrap.dedent(APP), encoding="utf8")
    subprocess.run([sys.executable, "app.py"], check=True, timeout=120, stdout=subprocess.DEVNULL)
    states = [item["state"] for item in json.loads(duly("items", "--json"))]
    if states != ["done"]:
        sys.exit(f"the item should be done, but the list has {states}")
    duly("doctor")
    if kind == "server":
        serve()
    print("ok")


def serve() -> None:
    """Start the service, ask whether it is ready, and stop it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Path("serve.log").open("w+", encoding="utf8") as log:
        server = subprocess.Popen([BIN / "duly", "serve", "app.py:app", "--http-port", str(port)], stderr=log)
        try:
            for _ in range(600):
                if server.poll() is not None:
                    break
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                        return
                except OSError:
                    time.sleep(0.1)
            sys.exit(f"duly serve was not ready: {Path('serve.log').read_text(encoding='utf8')}")
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main(*sys.argv[1:])
