"""Long calls to a service, in a process of their own, for `service` to draw beside.

Run as `python -m tests.benchmarks.beside export URL` or `... import URL ROWS`: downloads the pool `bench` again and
again, or uploads the rows into pools that it makes, until it is ended.
"""

import sys
from itertools import count
from pathlib import Path

import httpx

from tests.benchmarks.serving import TIMEOUT_S, upload


def main() -> None:
    kind, url, *rows = sys.argv[1:]
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        for number in count():
            if kind == "export":
                with client.stream("GET", "/v1/pools/bench/export", params={"format": "jsonl"}) as answer:
                    answer.raise_for_status()
                    for _ in answer.iter_raw():
                        pass
            else:
                client.post("/v1/pools", json={"name": f"beside-{number}"}).raise_for_status()
                upload(client, f"/v1/pools/beside-{number}/prompts", Path(rows[0]))
            print("done", flush=True)


if __name__ == "__main__":
    main()
