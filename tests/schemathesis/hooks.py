"""What schemathesis cannot know about the requests that it makes up."""

import itertools

import schemathesis

KEYS = ("Idempotency-Key", "X-Idempotency-Key", "Submit-Token")
numbers = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    headers = case.headers
    # Spin answers 500 to a header that is not UTF-8, before the component is asked.
    for name, value in list(headers.items()):
        if not value.isascii():
            del headers[name]
    # Made up keys and tokens contradict each other, or were used before. Most requests get one that
    # is good, so that they come further.
    number = next(numbers)
    declared = {parameter.name for parameter in case.operation.headers}
    if "Idempotency-Key" in declared and number % 4:
        for name in KEYS:
            headers.pop(name, None)
        headers["Idempotency-Key"] = f'"schemathesis-{number}"'
