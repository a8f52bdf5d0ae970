"""The options that say how tokens are drawn and where an answer ends, and what they make: one ``SamplingParams``.

Values are checked where they are used (``SamplingParams``, the engine), so the command line and the Python API refuse
the same things in the same words.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from jaxinfer.cli.json_values import parse_object
from jaxinfer.cli.option_groups import option_of
from jaxinfer.cli.text_files import text_or_file
from jaxinfer.sampling_params import SamplingParams, bias_of_json
from jaxinfer.structured_outputs.params import StructuredOutputsParams

_option, _form_option = option_of("Sampling"), option_of("Form of the answer (one of these)")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """What the command line says of every answer; the help of each option is its documentation."""

    min_tokens: Annotated[int, _option("Tokens before which nothing ends the output.")] = 0
    temperature: Annotated[float, _option("Divides the logits; 0 takes the most likely token.")] = 1.0
    top_k: Annotated[int, _option("Keep the k most likely tokens; 0: all.")] = 0
    top_p: Annotated[float, _option("Keep the most likely tokens of this probability together.")] = 1.0
    min_p: Annotated[float, _option("Drop tokens less likely than this times the most likely.")] = 0.0
    presence_penalty: Annotated[float, _option("Taken once from the logit of a token that was drawn before.")] = 0.0
    frequency_penalty: Annotated[float, _option("Taken for each time that a token was drawn before.")] = 0.0
    repetition_penalty: Annotated[
        float, _option("Above 1, tokens of prompt and output become less likely; 1 changes nothing.")
    ] = 1.0
    logit_bias: Annotated[
        str | None, _option("Numbers to add to tokens' logits, as a JSON object by token id: '{\"11\": -5}'.")
    ] = None
    seed: Annotated[
        int | None,
        _option("Seed of every prompt's draws. Without it each prompt has its own, the same ones in every run."),
    ] = None
    bad_word: Annotated[list[str] | None, _option("A text that is not written; may be given several times.")] = None
    allowed_token_id: Annotated[
        list[int] | None, _option("A token that may be drawn, and no others; may be given several times.")
    ] = None
    ignore_eos: Annotated[bool, _option("Go on after the model's end tokens.", "--ignore-eos")] = False
    stop: Annotated[list[str] | None, _option("A text before which the output ends; may be given several times.")] = (
        None
    )
    include_stop_str_in_output: Annotated[
        bool, _option("End the output behind the text of --stop, not before it.", "--include-stop-str-in-output")
    ] = False
    stop_token_id: Annotated[
        list[int] | None, _option("A further token that ends the output; may be given several times.")
    ] = None
    json_schema: Annotated[
        str | None, _form_option("A JSON value that fits this schema, given as JSON or as @FILE.")
    ] = None
    json_object: Annotated[bool, _form_option("Any JSON object.", "--json-object")] = False
    regex: Annotated[str | None, _form_option("A text that this regular expression matches as a whole.")] = None
    choice: Annotated[list[str] | None, _form_option("One of these texts; to be given several times.")] = None
    grammar: Annotated[
        str | None, _form_option("A text of this context-free grammar in the form of Lark, or of the one in @FILE.")
    ] = None

    def params(self, **more: Any) -> SamplingParams:
        """All that was said, with ``more`` arguments of ``SamplingParams`` from the command's own options.

        Raises:
            ValueError: a value is out of range, no JSON object, or the name of a file that cannot be read; two forms of
                the answer are given.
        """
        bias = parse_object("--logit-bias", self.logit_bias)
        return SamplingParams(
            min_tokens=self.min_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=None if bias is None else bias_of_json(bias),
            seed=self.seed,
            bad_words=self.bad_word,
            allowed_token_ids=self.allowed_token_id or None,
            ignore_eos=self.ignore_eos,
            stop=self.stop,
            include_stop_str_in_output=self.include_stop_str_in_output,
            stop_token_ids=self.stop_token_id,
            structured_outputs=self._structured_outputs(),
            **more,
        )

    def _structured_outputs(self) -> StructuredOutputsParams | None:
        forms = {
            "json": text_or_file("--json-schema", self.json_schema),
            "json_object": self.json_object or None,
            "regex": self.regex,
            "choice": self.choice or None,
            "grammar": text_or_file("--grammar", self.grammar),
        }
        given: dict[str, Any] = {name: form for name, form in forms.items() if form is not None}
        return StructuredOutputsParams(**given) if given else None
