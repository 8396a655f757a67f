#!/usr/bin/env python3
"""Enqueue, wait and cancel: python3 example.py http://127.0.0.1:8081/api/v1 TOKEN"""

import sys

from durable_api import ApiError, Client

client = Client(sys.argv[1], token=sys.argv[2])

run = client.enqueue({"job": "mail", "args": {"to": "ann@example.com"}}, idempotency_key="order-4711")
again = client.enqueue({"job": "mail", "args": {"to": "ann@example.com"}}, idempotency_key="order-4711")
print("enqueued once:", run["id"] == again["id"], again["existing"])

ended = client.wait_for_run(run["id"], timeout="30s")
print("ended:", ended["state"], ended["args"])

later = client.enqueue({"runs": [{"job": "mail", "after": "1h", "args": None}, {"job": "mail", "after": "1h"}]})
for one in later["runs"]:
    print("cancelled:", client.cancel_run(one["id"], {"reason": "not needed, ü"})["result"])
page = client.list_runs(state=["cancelled", "dead"], job=["mail"], limit=1)
while page["next"]:
    page = client.list_runs(state=["cancelled", "dead"], job=["mail"], limit=1, cursor=page["next"])
print("the oldest:", page["runs"][0]["state"] if page["runs"] else "none")

client.put_schedule("nightly/a@b", {"job": "mail", "rule": {"every": "1h"}})
print("schedule:", client.list_schedules(name="nightly/a@b")["schedules"][0]["name"])

for name, data in client.events():
    print("event:", name, data["due"])
    break

try:
    client.enqueue({"job": "mial"})
except ApiError as refused:
    print("refused:", refused.status, refused.code)
try:
    Client(sys.argv[1], token="no-such-token-0123").list_queues()
except ApiError as refused:
    print("refused:", refused.status, refused.code)
