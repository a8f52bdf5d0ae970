"""Who may run: what can never fit is refused, and a request that waits is admitted once it can run to a useful length.

Pages are taken as tokens need them, so a request may lose its own to one that arrived earlier. Against thrashing it is
admitted only if, after its known tokens, it and every running one can grow by some tokens without that. Each time it is
preempted these are four times as many, and at most what each can ever need. All that run arrived before it; so once
there was room for all that they and it need, only later arrivals can make pages run out, and those are preempted first.
That is so when page_size * 4^n reaches max_model_len: no request is preempted more often than
ceil(log4(max_model_len / page_size)) times, and never if that is negative.
"""

from collections.abc import Collection

from jaxinfer.config import EngineConfig
from jaxinfer.kv_pages import KVPages
from jaxinfer.request import Request
from jaxinfer.value_checks import shown

_GROWTH_PER_PREEMPTION = 4
"""Factor of the tokens for which there must be room at the next admission."""


class TooLongError(ValueError):
    """A prompt, or what may come of it, has more tokens than the model or the pool takes."""


class Admission:
    """Counts pages of requests against those of the pool.

    Args:
        config: the engine's limits.
        pages: what the running requests hold.
    """

    def __init__(self, config: EngineConfig, pages: KVPages) -> None:
        self._config, self._pages = config, pages

    def check_fits(self, request: Request) -> None:
        """Refuse a request that can never run to its end.

        Raises:
            ValueError: its prompt is empty.
            TooLongError: it is too long for the model or the pool; the message gives the numbers.
        """
        config, name, num_prompt = self._config, f"request {shown(request.request_id)}", request.num_prompt_tokens
        if num_prompt == 0:
            raise ValueError(f"{name} has an empty prompt; at least one token is needed")
        if num_prompt > config.max_model_len:
            raise TooLongError(
                f"the prompt has {num_prompt} tokens and max_model_len is {config.max_model_len}; "
                "shorten the prompt or raise max_model_len"
            )
        if not 0 <= request.max_new_tokens <= config.max_model_len - num_prompt:
            raise ValueError(
                f"{name} has max_new_tokens {request.max_new_tokens}; with a prompt of {num_prompt} tokens and "
                f"max_model_len {config.max_model_len} it must be in [0, {config.max_model_len - num_prompt}]"
            )
        least = config.least_pages(max(request.max_cached_tokens, config.reserved_tokens))
        for window, needed, there in zip(config.windows, least, config.group_pages, strict=True):
            if needed > there:
                of_layers = "" if len(config.windows) == 1 else f" of the layers with window {window}"
                raise TooLongError(
                    f"the prompt has {num_prompt} tokens and may be gone on with by {request.max_new_tokens} more "
                    f"(max_model_len is {config.max_model_len}), which takes {needed} KV pages of "
                    f"{config.page_size} tokens{of_layers}, and the pool has {there}, for {there * config.page_size} "
                    "tokens; shorten the prompt, lower max_tokens or raise num_kv_pages"
                )

    def has_room(self, request: Request, num_prefix_pages: int, running: Collection[Request]) -> bool:
        """Whether a waiting request and all running ones can run to a useful length with nobody preempted.

        Args:
            request: the next to be admitted.
            num_prefix_pages: as ``KVPages.find_prefix`` says.
            running: all requests that hold pages.
        """
        if not running:  # alone it always runs, in pieces as large as there is room for
            return True
        ahead = self._config.page_size * _GROWTH_PER_PREEMPTION**request.num_preemptions
        goals = [(other, self._goal(other, other.num_prefill_tokens, ahead)) for other in running]
        goal = self._goal(request, request.num_known_tokens, ahead)
        return all(
            self._group_has_room(group, request, goal, num_prefix_pages, goals)
            for group in range(len(self._config.windows))
        )

    def _goal(self, request: Request, num_read: int, ahead: int) -> int:
        """Tokens in the cache once it has read its prompt and drawn ``ahead`` tokens more, if it draws so many."""
        goal = min(max(num_read, request.num_scheduled_tokens) + ahead, request.max_cached_tokens)
        return max(goal, self._config.reserved_tokens)

    def _group_has_room(
        self, group: int, request: Request, goal: int, num_prefix_pages: int, running: list[tuple[Request, int]]
    ) -> bool:
        """Whether one group has the pages that the tables lack until they come to their goals.

        A table that slides on its way gives up what it shares and takes new pages, so it is counted whole: the window's
        pages and one more. Pieces of prompts come on top, but those of one step have ``max_chunk_tokens`` together, so
        these are counted once. The other tables keep what they hold, and each page of that is counted once.
        """
        config, pages = self._config, self._pages
        staying = [(other, end) for other, end in running if not pages.slides(end, group)]
        sliding = [end for _, end in running if pages.slides(end, group)]
        kept = set[int]()
        if pages.slides(goal, group):
            sliding.append(goal)
        else:
            kept.update(pages.held_prefix(request, num_prefix_pages, group))
            staying.append((request, goal))
        lacking = sum(max(0, pages.num_pages(end) - other.num_pages) for other, end in staying) - len(kept)
        if not sliding:  # whatever is held is kept
            return lacking <= pages.num_free[group]
        window_pages = config.least_pages(config.max_model_len)[group]
        lacking += sum(min(pages.num_pages(end), window_pages + 1) for end in sliding)
        lacking += pages.num_pages(config.max_chunk_tokens)
        kept.update(*(other.page_tables[group].pages for other, _ in staying if other is not request))
        return lacking <= config.group_pages[group] - len(kept)
