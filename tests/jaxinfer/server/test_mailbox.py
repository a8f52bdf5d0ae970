"""What waits for a client that reads slowly: never more than one output of a prompt, in which nothing is lost."""

import asyncio

import pytest

from jaxinfer.openai_api.errors import failed
from jaxinfer.outputs import CompletionOutput, RequestOutput
from jaxinfer.server.mailbox import Mailbox


def output(*deltas: str, text: str = "", finished: bool = False) -> RequestOutput:
    sequences = [CompletionOutput(i, text, [], None, delta) for i, delta in enumerate(deltas)]
    return RequestOutput("0", None, [], sequences, finished, None, None)


def deltas(given: RequestOutput) -> list[str]:
    return [sequence.delta for sequence in given.outputs]


def test_outputs_that_wait_are_joined_to_the_newest():
    async def run() -> dict[int, RequestOutput]:
        mailbox = Mailbox()
        for given in (
            output("a", "x", text="a"),
            output("b", "", text="ab"),
            output("", "y", text="ab", finished=True),
        ):
            mailbox.put(0, given)
        mailbox.put(1, output("z"))
        return await mailbox.fetch()

    fetched = asyncio.run(run())
    assert deltas(fetched[0]) == ["ab", "xy"]
    assert (fetched[0].outputs[0].text, fetched[0].finished) == ("ab", True)
    assert deltas(fetched[1]) == ["z"]


def test_what_was_fetched_does_not_come_again_and_one_waits_for_the_next():
    async def run() -> list[str]:
        mailbox = Mailbox()
        mailbox.put(0, output("a"))
        first = await mailbox.fetch()
        waiting = asyncio.create_task(mailbox.fetch())
        await asyncio.sleep(0)
        assert not waiting.done()
        mailbox.put(0, output("b"))
        return deltas(first[0]) + deltas((await waiting)[0])

    assert asyncio.run(run()) == ["a", "b"]


def test_an_error_comes_after_what_came_before_it_and_the_first_one_counts():
    async def run() -> None:
        mailbox = Mailbox()
        mailbox.put(0, output("a"))
        mailbox.fail(failed("first"))
        mailbox.fail(failed("second"))
        assert deltas((await mailbox.fetch())[0]) == ["a"]
        for _ in range(2):
            with pytest.raises(Exception, match=r"^first$"):
                await mailbox.fetch()

    asyncio.run(run())
