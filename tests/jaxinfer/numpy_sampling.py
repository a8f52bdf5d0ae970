"""What a sampler may draw, and how often, from the definitions, in NumPy and float64: sorted, cumulated and cut."""

import numpy as np

from jaxinfer.request import Request


def distribution(logits: np.ndarray, *, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Probability of each token of one row [V]: temperature, then top-k, top-p and min-p, each over what is left.

    A token that ties with the last one that top-k or top-p keeps is kept too.
    """
    scaled = logits.astype(np.float64) / temperature
    shares = _normalized(np.exp(scaled - scaled.max()))
    if top_k > 0:
        shares[logits < np.sort(logits)[-min(top_k, len(logits))]] = 0
        shares = _normalized(shares)
    if top_p < 1:
        order = np.argsort(-shares, kind="stable")
        num_needed = 1 + np.count_nonzero(np.cumsum(shares[order]) < top_p)
        shares[logits < logits[order[num_needed - 1]]] = 0
        shares = _normalized(shares)
    shares[shares < min_p * shares.max()] = 0
    return _normalized(shares)


def adjusted(logits: np.ndarray, request: Request) -> np.ndarray:
    """One row [V] in float64 with the request's bias and its penalties, token by token.

    As OpenAI's API and vLLM define them: the repetition penalty for tokens of prompt and output, the two others for
    those of the output.
    """
    params, prompt, output = request.params, request.prompt_token_ids, request.output_token_ids
    result = logits.astype(np.float64)
    for token_id, bias in (params.logit_bias or {}).items():
        result[token_id] += bias
    for token_id in {*prompt, *output}:
        if result[token_id] > 0:
            result[token_id] /= params.repetition_penalty
        else:
            result[token_id] *= params.repetition_penalty
    for token_id in output:
        result[token_id] -= params.frequency_penalty
    for token_id in set(output):
        result[token_id] -= params.presence_penalty
    return result


def chi_square_excess(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Pearson's statistic of drawn tokens over its 99.9 % quantile; above 1 in one of 1,000 honest samples.

    The quantile is that of Wilson and Hilferty (1931). Tokens expected fewer than 5 times are counted together.
    """
    expected = probabilities * counts.sum()
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    if observed[-1] == 0 and expected[-1] < 5:
        observed, expected = observed[:-1], expected[:-1]
    freedom = len(observed) - 1
    if freedom == 0:  # one token only, which must then have been drawn each time
        return 0.0 if observed[0] == expected[0] else np.inf
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.0902 * np.sqrt(2 / (9 * freedom))) ** 3
    return float(((observed - expected) ** 2 / expected).sum() / quantile)


def _normalized(shares: np.ndarray) -> np.ndarray:
    return shares / shares.sum()
