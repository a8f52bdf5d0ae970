"""Chat templates: what models' templates use, what the sandbox forbids, and that every bad one ends as an error."""

import json
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxinfer.chat_template import budget, render_chat, rendering
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.mistral_messages import prepared_messages
from tests.reference import FIXTURES
from tests.vocabularies import smollm2_path, write_byte_level_json

HI = [{"role": "user", "content": "hi"}]


@dataclass
class Vocabulary:
    """A tokenizer that knows how to spell BOS (1) and EOS (2), and no more."""

    chat_template: str | None
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    chat_template_file: Path | None = None

    def token_text(self, token_id: int) -> str:
        return {1: "<s>", 2: "</s>"}[token_id]


def calling(tool_calls) -> list[dict]:
    return [{"role": "assistant", "content": None, "tool_calls": tool_calls}]


LONG = "x" * 10_000


def render(template: str, messages=HI, **options) -> str:
    return render_chat(Vocabulary(template), messages, **options)


def test_smollm2_writes_what_transformers_writes():
    reference = json.loads((FIXTURES / "smollm2_tokenizer" / "reference.json").read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(smollm2_path())
    for chat in reference["chats"]:
        text = render_chat(tokenizer, chat["messages"], add_generation_prompt=chat["add_generation_prompt"])
        assert text == chat["text"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("{% for m in messages %}\n  {% if m.role == 'user' %}\nU\n  {% endif %}\n{% endfor %}\n", "U\n"),
        ("{% for i in 'abc' %}{% if i == 'b' %}{% break %}{% endif %}{{ i }}{% endfor %}", "a"),
        ("{% for i in 'abc' %}{% if i == 'b' %}{% continue %}{% endif %}{{ i }}{% endfor %}", "ac"),
        ("{{ {'a': 'é<>&\\''} | tojson }}", '{"a": "é<>&\'"}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=2) }}", '{\n  "b": 1,\n  "a": 2\n}'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ tools is none }} {{ add_generation_prompt }}", "True True"),
        ("{% generation %}words{% endgeneration %}", "words"),
        (
            "{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{% endfor %}",
            "1TrueTrue1",
        ),
        ("{% for m in [] %}{% else %}none{% endfor %}", "none"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(messages[0]['content'] | trim) ~ '!' }}", "[hi]!"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages[-1].content.split('i')[0] }}", "h"),
        ("{{ missing is defined }}{{ missing }}", "False"),
        ("{{ messages | map(attribute='role') | join(', ') }}{{ messages | join('', attribute='role') }}", "useruser"),
        (
            "{{ ', '.join(['a', 'b']) }}{{ 'abab' | replace('a', 'x', 1) }}{{ 'abab'.replace('a', 'x') }}",
            "a, bxbabxbxb",
        ),
        ("{{ 'a\nb' | indent(2, true) }}{{ 'a\nb' | indent(width='--') }}", "  a\n  ba\n--b"),
        ("{{ 'it is' | title }}{{ 'HI'.lower() | capitalize }}{{ ' x ' | trim }}{{ 'xyx'.strip('x') }}", "It IsHixy"),
        ("{{ [2, 1, 2] | sort | unique | list }}{{ [1, 2] | select('odd') | first }}", "[1, 2]1"),
        ("{% for k, v in {'k': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ {}.get('a', 0) }}", "k10"),
        (
            "{% for k, v in {'k': 1} | dictsort %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1} | items | list }}",
            "k1[('a', 1)]",
        ),
        ("{{ '%s: %05.1f%%' | format('a', 2) }}{{ '%d' % 3 }}{{ 7 % 2 }}", "a: 002.0%31"),
        ("{% set a, b = 1, 2 %}{{ a + b }}{{ [1, 2, 3][1:] }}{{ messages[::-1][0]['role'] }}", "3[2, 3]user"),
        ("{% set x | upper %}a{% endset %}{{ x }}{% filter lower %}A{% endfilter %}", "Aa"),
        ("{{ dict(a=1) }}{% set j = joiner(',') %}{{ j() }}a{{ j() }}b", "{'a': 1}a,b"),
        ("{{ strftime_now('%d %B, %-d %%') | length > 8 }}", "True"),
        ("{{ strftime_now(format='%Y') | length }}{{ ['a', 'b'] | join(d=', ') }}", "4a, b"),
        ("{{ [1] | tojson(indent='  ') }}{{ [1] | tojson(indent=1) }}", "[\n  1\n][\n 1\n]"),
        ("{{ none | map('upper') | list }}{{ none | select | list }}{{ none | reject('odd') | list }}", "[][][]"),
        ("{{ none | selectattr('a') | list }}{{ none | rejectattr('a') | list }}{{ '' | list }}", "[][][]"),
        ("{{ 'a {} {}'.format('b', 3) }}{{ '{1}{0}{1}'.format('a', 'b') }}", "a b 3bab"),
        ("{{ '{{{x}}}{y_1}'.format(x=[1], y_1=none) }}{{ ('<{}>' | safe).format('&') }}", "{[1]}None<&>"),
        ("{{ [1, 2.5] | sum }}{{ [{'n': 1}, {'n': 2}] | sum(attribute='n', start=4) }}{{ [] | sum }}", "3.570"),
        (
            "{{ 2.567 | round(2) }}{{ 2.1 | round(method='ceil') | int }}{{ 25.5 | round(-1, 'floor') | int }}",
            "2.57320",
        ),
        (
            "{% for role, group in messages | groupby('role') %}{{ role }}{{ group | length }}{% endfor %}"
            "{{ (messages | groupby('role'))[0].grouper }}",
            "user1user",
        ),
    ],
)
def test_what_templates_use(template, text):
    assert render(template) == text


def test_tools_and_other_keys_reach_the_template():
    tools = [{"type": "function", "function": {"name": "f"}}]
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
    template = "{{ tools[0].function.name }}{{ messages[1].tool_calls[0].id }}{{ add_generation_prompt }}"
    assert render(template, [*HI, call], tools=tools, add_generation_prompt=False) == "f1False"


def test_keys_without_a_value_are_not_there():
    calls = [{"id": None, "function": {"name": "f"}}]
    call = {"role": "assistant", "content": None, "tool_calls": calls}
    template = "{% for m in messages %}{{ 'tool_calls' in m }}[{{ m.content }}]{{ m.name is defined }}{% endfor %}"
    messages = [{"role": "user", "content": "hi", "tool_calls": None, "name": None}, call, HI[0] | {"tool_calls": []}]
    assert render(template, messages) == "False[hi]FalseTrue[]FalseFalse[hi]False"
    assert render("{{ messages[0].tool_calls[0].id }}", [call]) == "None"  # what is within a value is the caller's
    assert call == {"role": "assistant", "content": None, "tool_calls": [{"id": None, "function": {"name": "f"}}]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": 1, "b": "é"}', '{"a": 1, "b": "é"}'),
        ({"a": 1}, '{"a": 1}'),
        ("", "{}"),
        (None, "{}"),
    ],
)
def test_arguments_of_calls_are_objects_for_a_template(arguments, text):
    """OpenAI's API has JSON text, which a template would write as a string, with every quote escaped."""
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    assert render("{{ messages[0].tool_calls[0].function.arguments | tojson }}", [call]) == text
    assert call["tool_calls"][0]["function"]["arguments"] is arguments


def test_parts_of_text_are_text_for_a_template():
    """As clients of OpenAI's API send them; written out by a template they would be Python's list."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for kind in (list, tuple):
        assert render("{{ messages[0].content }}", [{"role": "user", "content": kind(parts)}]) == "a\nb"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content }}",
        "{# tools #}",
        "{{ builtin_tools }}",
        "tools",
        "{{ 'tools' }}",
        "{{ messages.tools }}",
        "{% set tools = [] %}{{ tools }}",
        "{% for tools in messages %}{{ tools }}{% endfor %}",
        "{% macro m(tools) %}{{ tools }}{% endmacro %}{{ m([]) }}",
    ],
)
def test_tools_that_a_template_does_not_show_are_refused(template):
    with pytest.raises(ValueError) as caught:
        render(template, tools=[{"type": "function", "function": {"name": "f"}}])
    words = "this model's chat template has no place for tools, so the model would not know of them"
    assert str(caught.value) == words


@pytest.mark.parametrize(
    "template",
    [
        "{% if tools is defined and tools %}{{ tools[0].function.name }}{% endif %}",
        "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools[0].function.name }}",
        "{% macro m() %}{{ tools[0].function.name }}{% endmacro %}{{ m() }}",
        "{% generation %}{{ tools[0].function.name }}{% endgeneration %}",
        "{% for m in messages %}{% for t in tools %}{{ t.function.name }}{% endfor %}{% endfor %}",
    ],
)
def test_tools_are_seen_wherever_a_template_reads_them(template):
    assert render(template, tools=[{"type": "function", "function": {"name": "f"}}]) == "f"


@pytest.mark.parametrize(
    ("template", "options", "words"),
    [
        ("{{ a }}{{ mood }}", {"enable_thinkin": False}, "'enable_thinkin'; it reads a, mood"),
        ("{# mood #}{{ messages[0].mood }}", {"mood": 1}, "'mood'; it reads no options"),
        ("{{ a }}{{ messages }}", {"messages": []}, "'messages'; it reads a"),
        ("{{ a }}{{ bos_token }}", {"bos_token": ""}, "'bos_token'; it reads a"),
        ("{{ a }}{{ range(3) }}", {"range": 1}, "'range'; it reads a"),
        ("{{ a }}", {5: 1}, "5; it reads a"),
        ("{{ a }}", {"x" * 1000: 1}, f"'{'x' * 12}...{'x' * 13}'; it reads a"),
    ],
)
def test_an_option_that_a_template_does_not_read_is_refused(template, options, words):
    """It is the caller's mistake, and not told as the template's."""
    with pytest.raises(ValueError) as caught:
        render(template, options=options)
    assert str(caught.value) == f"this model's chat template has no option {words}"


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for m in messages %}", "has a syntax error in line 1: "),
        ("{{ [1] | no_such_filter }}", "uses something that is not allowed in line 1: "),
        ("{{ open('/etc/hostname') }}", "failed: 'open' is undefined"),
    ],
)
def test_a_template_that_fails_is_named_by_its_file(tmp_path, name, template, words):
    is_own = name == "chat_template.jinja"
    folder = write_byte_level_json(tmp_path, **({} if is_own else {"chat_template": template}))
    if is_own:
        (folder / name).write_text(template)
    with pytest.raises(ValueError) as caught:
        load_tokenizer(folder).encode_chat(HI)
    assert str(caught.value).startswith(f"{folder / name}: the chat template {words}")


def test_the_words_of_a_template_are_cut():
    with pytest.raises(ValueError, match=r"the chat template failed: a+\.\.\.$") as caught:
        render("{{ raise_exception('a' * 1000000) }}")
    assert len(str(caught.value)) < 600


def test_an_option_may_be_one_that_the_template_sets_where_it_is_missing():
    template = "{% if mood is not defined %}{% set mood = 'calm' %}{% endif %}{{ mood }}"
    assert render(template) == "calm"
    assert render(template, options={"mood": "loud"}) == "loud"


def test_a_model_without_bos_spells_none():
    assert render_chat(Vocabulary("[{{ bos_token }}{{ eos_token }}]", None, None), HI) == "[]"


def test_eos_is_spelled_as_the_tokenizers_files_say(tmp_path):
    """As Llama 3 Instruct: its generation_config.json lists the end of a text before the end of a turn."""
    folder = write_byte_level_json(tmp_path, eos_token="</s>", chat_template="{{ eos_token }}")
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2, 1]}')
    assert render_chat(load_tokenizer(folder), HI) == "</s>"


def test_renderings_do_not_share_state():
    template = "{% set x = 'a' * 8000000 %}" * 10 + "x"
    assert [render(template) for _ in range(4)] == ["x"] * 4  # four times as much is more than one may build


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ ''['__class__'].__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ raise_exception.__globals__.keys }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% include '/etc/hostname' %}", "no loader"),
        ("{% import 'os' as os %}", "no loader"),
        ("{% from 'os' import path %}", "no loader"),
        ("{% extends 'chat_template.jinja' %}", "no loader"),
        ("{{ open('/etc/hostname') }}", "'open' is undefined"),
        ("{{ missing.attribute }}", "'missing' is undefined"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for m in messages %}", "syntax error"),
        (
            "{{ [1] | no_such_filter }}",
            "uses something that is not allowed in line 1: No filter named 'no_such_filter'",
        ),
        ("{{ ''.format.__self__.upper }}", "unsafe"),
        ("{{ '{0.__class__}'.format(1) }}", "'{0.__class__}'"),
        ("{{ '{a[b]}'.format(a={}) }}", "'{a[b]}'"),
        ("{{ '{!r}'.format(1) }}", "'{!r}'"),
        ("{{ '{:{}}'.format(1, 2) }}", "'{:{}}'"),
        ("{{ '{} {}'.format(1) }}", "out of range"),
        ("{{ '{:2}'.format_map({}) }}", "unsafe"),
        ("{{ 1 // 0 }}", "zero"),
    ],
)
def test_what_is_forbidden_or_wrong_is_said(template, words):
    with pytest.raises(ValueError) as caught:
        render(template)
    assert "the chat template" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ lipsum(100000) }}", "lipsum"),
        ("{{ 1.5 | round(10 ** 8, 'ceil') }}", "100000000 digits"),
        ("{{ 1 | round(-(10 ** 8)) }}", "-100000000 digits"),
        ("{{ [1] | slice(10 ** 9) | list }}", "slice"),
        ("{{ [1] | batch(10 ** 10, 'x') | list }}", "batch"),
        ("{{ 'a' | center(3 * 10 ** 9) }}", "center"),
        ("{{ ['a'] | map('center', 3 * 10 ** 9) | list }}", "center"),
        ("{{ 'a'.ljust(3 * 10 ** 9) | length }}", "ljust"),
        ("{{ 'a'['rjust'](3 * 10 ** 9) | length }}", "rjust"),
        ("{{ ('a' | safe).center(3 * 10 ** 9) | length }}", "center"),
        ("{{ '1'.zfill(3 * 10 ** 9) | length }}", "zfill"),
        ("{{ 'x\ty'.expandtabs(3 * 10 ** 9) | length }}", "expandtabs"),
        ("{{ '{:>3000000000}'.format(1) }}", "format"),
        ("{{ (1).to_bytes(3 * 10 ** 9) }}", "to_bytes"),
        ("{{ '%3000000000d' % 1 }}", "%"),
        ("{{ '%*d' % (3 * 10 ** 9, 1) }}", "%"),
        ("{{ '%%%3000000000d' | format(1) }}", "%"),
        ("{{ '%(a(b))3000000000d' % {'a(b)': 1} }}", "%"),
        ("{{ '%.3000000000f' % 1 }}", "%"),
        ("{{ strftime_now('%3000000000d') }}", "%3000000000d"),
        ("{{ messages | tojson(indent=10 ** 9) }}", "1000000000"),
        ("{{ [[1]] | sum(start=[]) }}", "only numbers"),
        ("{{ messages | tojson(indent=' ' * 1000) }}", "1000"),
        ("{{ 'a' | indent(10 ** 9, true) }}", "1000000000"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape"),
    ],
)
def test_what_no_template_needs_is_unknown(template, name):
    """Each would take gigabytes or minutes in one step."""
    with pytest.raises(ValueError, match="the chat template") as caught:
        render(template)
    assert name in str(caught.value)


DOUBLING = "{% set ns = namespace(x='aa', l=[1]) %}{% for i in range(60) %}BODY{% endfor %}"
SOUGHT = "{% set x = 'ab' * 4000000 %}{% set y = 'ba' * 2000000 ~ 'c' %}"
ENDLESS = {
    "nested loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "loop conditions": "{% set r = range(100000) | list %}{% for i in r if -1 in r %}{% endfor %}",
    "greatest of loops": "{% for i in range(100000) if i > range(100000) | max %}{% endfor %}",
    "recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "recursion of a block": "{% block a %}{{ self.a() }}{% endblock %}",
    "recursion of a loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "two calls each": "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "a great range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "a great output": "{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}",
    "a great text": "{{ 'a' * 10 ** 10 }}",
    "a great list": "{{ [1] * 10 ** 10 }}",
    "a great number": "{{ 9 ** (10 ** 9) }}",
    "doubling by +": DOUBLING.replace("BODY", "{% set ns.x = ns.x + ns.x %}"),
    "doubling by + of lists": DOUBLING.replace("BODY", "{% set ns.l = ns.l + ns.l %}"),
    "doubling by ~": DOUBLING.replace("BODY", "{% set ns.x = ns.x ~ ns.x %}"),
    "doubling by %": DOUBLING.replace("BODY", "{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
    "doubling by a block": DOUBLING.replace("BODY", "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}"),
    "doubling lists of lists": DOUBLING.replace("BODY", "{% set ns.l = [ns.l, ns.l] %}"),
    "doubling tuples of tuples": DOUBLING.replace("BODY", "{% set ns.l = (ns.l, ns.l) %}"),
    "doubling dicts of dicts": DOUBLING.replace("BODY", "{% set ns.l = {'a': ns.l, 'b': ns.l} %}"),
    "doubling dicts by a call": DOUBLING.replace("BODY", "{% set ns.l = dict(a=ns.l, b=ns.l) %}"),
    "doubling lists by *": DOUBLING.replace("BODY", "{% set ns.l = [ns.l] * 2 %}"),
    "doubling values of dicts": DOUBLING.replace("BODY", "{% set ns.l = {'a': ns.l, 'b': ns.l}.values() %}"),
    "doubling arguments": "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}"
    "{% else %}{{ varargs | string }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a great separator": "{{ ('b' * 8000000).join(['a'] * 2000) }}",
    "a great separator of a filter": "{{ (['a'] * 2000) | join('b' * 8000000) }}",
    "a great replacement": "{{ ('a' * 4000000).replace('a', 'b' * 1000000) }}",
    "a great replacement by a filter": "{{ ('a' * 4000000) | replace('a', 'b' * 1000000) }}",
    "a great margin": "{{ ('\n' * 100000) | indent('a' * 1000000) }}",
    "a great separator of JSON": "{{ [1, 1, 1] | tojson(separators=('a' * 8000000, 'b')) }}",
    "a great number of digits": "{{ 2 ** 4000 * 2 ** 4000 }}",
    "many great values": "{% set x = 'a' * 8000000 %}" + "{% set y = x[1:] %}" * 40,
    "many joints": "{% set x = 'a' * 8000000 %}{{ " + " ~ ".join(["x"] * 40) + " }}",
    "a filter that gives nothing": "{{ ('a' * 8000000) | select('none') | list }}",
    "a great set to strip": "{{ ('a' * 8000000).strip('b' * 4000000 + 'a') }}",
    "a great set to trim": "{{ ('a' * 8000000) | trim('b' * 4000000 + 'a') }}",
    "words": "{{ ('a-' * 4000000) | title }}",
    "a great text in braces": "{{ ('{0}' * 1000000).format('b' * 1000000) }}",
    "comparisons": SOUGHT + "{% set l = [" + "y in x, " * 3000 + "] %}",
    "tests": SOUGHT + "{% set l = [" + "y is in x, " * 3000 + "] %}",
    "a great source": "{{ 1 }}" * 40000,
    "doubling by a filter": DOUBLING.replace("BODY", "{% set ns.x = ns.x | replace('a', 'aa') %}"),
}


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_would_not_end_is_ended(template, monkeypatch):
    monkeypatch.setattr(budget, "MAX_SECONDS", 0.5)
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"failed: (it|its|Range|maximum recursion)\b"):  # never MemoryError
        render(template)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in 'a' * 60 %}{% endfor %}",
        "{% for i in 'a' * 60 if false %}{% endfor %}",
        "{% macro f() %}{% endmacro %}" + "{{ f() }}" * 60,
        "{{ messages" + " | list" * 60 + " }}",
        "{% set ns = namespace(n=1) %}" + "{% set ns.n = ns.n ~ 1 %}" * 60,
    ],
    ids=["rounds", "rounds passed over", "calls", "filters", "joints"],
)
def test_the_time_is_asked_for_at_every_step(template, monkeypatch):
    """By a clock that goes on by a second whenever it is asked."""
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=count().__next__))
    monkeypatch.setattr(budget, "MAX_SECONDS", 10_000)
    assert render(template) is not None
    monkeypatch.setattr(budget, "MAX_SECONDS", 50)
    with pytest.raises(ValueError, match="more than 50 seconds"):
        render(template)


def test_a_namespace_in_itself_is_written():
    assert render("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}") == "[<namespace>]"


def test_a_conversation_is_weighed_once():
    """What a template passes on in every round costs no more for being long."""
    template = "{% macro f(all) %}{{ all | length }}{% endmacro %}{% for m in messages %}{{ f(messages) }}{% endfor %}"
    assert render(template, HI * 3_000) == "3000" * 3_000


def test_nothing_runs_while_compiling(monkeypatch):
    """jinja evaluates constants then, once to optimize and once more to write them out."""
    steps = []
    monkeypatch.setattr(budget.Budget, "step", lambda _: steps.append(1))
    rendering._compiled("{{ 'a' | upper }}{% set x = [1, 2] | length %}{{ ['a' ~ 'b'] }}")
    assert steps == []


def test_time_is_bounded(monkeypatch):
    monkeypatch.setattr(budget, "MAX_SECONDS", -1.0)
    with pytest.raises(ValueError, match="seconds"):
        render("{% for m in messages %}{% endfor %}")


def test_a_long_conversation_is_within_the_bounds():
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% if loop.last %}.{% endif %}{% endfor %}"
    messages = [{"role": "user", "content": "word " * 200}] * 2_000
    assert len(render(template, messages)) == 2_000 * (6 + 999) + 1


def test_quick_steps_may_be_many():
    assert render("{% for i in range(90000) %}{% endfor %}" * 4 + "x") == "x"


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ({"role": "user", "content": "hi"}, "messages"),
        (None, "messages"),
        (["hi"], "messages[0]"),
        ([*HI, {"content": "hi"}], "messages[1]['role']"),
        ([{"role": 1, "content": "hi"}], "messages[0]['role']"),
        ([{"role": "user"}], "messages[0]['content']"),
        ([{"role": "user", "content": None}], "messages[0]['content']"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0]['content']"),
        ([{"role": "user", "content": [{"type": "image_url", "text": "a"}]}], "messages[0]['content']"),
        ([{"role": "user", "content": ["a"]}], "messages[0]['content']"),
        ([{"role": "user", "content": {"type": "text", "text": "a"}}], "messages[0]['content']"),
        (calling("f"), "messages[0]['tool_calls'] is 'f'"),
        (calling(["f"]), "messages[0]['tool_calls'][0] is 'f'"),
        (calling([{"name": "f"}]), "messages[0]['tool_calls'][0]"),
        (calling([{"function": {"name": 5}}]), "messages[0]['tool_calls'][0]"),
        (calling([{"function": {"name": "f", "arguments": "{"}}]), "['tool_calls'][0]['function']['arguments'] is '{'"),
        (calling([{"function": {"name": "f", "arguments": "[1]"}}]), "is '[1]'; it must be a JSON object"),
        (calling([{"function": {"name": "f", "arguments": 5}}]), "is 5; it must be a JSON object"),
        (calling([{"function": {"name": "f", "arguments": "[" * 100_000}}]), "no JSON"),
        (calling([{"function": {"name": "f", "arguments": '{"a": NaN}'}}]), "no JSON"),
        (calling([{"function": {"name": "f", "arguments": '{"a": [1e999]}'}}]), "no JSON"),
        (calling([{"function": {"name": "f", "arguments": {"a": float("inf")}}}]), "no JSON"),
        (calling([{"function": {"name": "f", "arguments": {"a": b"x"}}}]), "no JSON"),
    ],
)
def test_bad_messages_are_named(messages, word):
    with pytest.raises(ValueError) as caught:
        render("x", messages)
    assert word in str(caught.value)


@pytest.mark.parametrize("check", [render_chat, lambda _, messages: prepared_messages(messages)])
@pytest.mark.parametrize(
    "wrong",
    [
        LONG,
        [LONG],
        [{"role": LONG.encode(), "content": "hi"}],
        [{"role": "user", "content": LONG.encode()}],
        [{"role": "user", "content": [LONG]}],
        calling(LONG),
        calling([LONG]),
        calling([{"function": {"name": "f", "arguments": LONG.encode()}}]),
    ],
)
def test_what_is_wrong_is_quoted_in_short(check, wrong):
    with pytest.raises(ValueError) as caught:
        check(Vocabulary("x"), wrong)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages | tojson(indent=[1] * 10000) }}",
        "{{ 'a' | indent({'a': 'b' * 10000}) }}",
        "{{ 1.5 | round('a' * 10000) }}",
        "{{ [1] | sum(start='a' * 10000) }}",
        "{{ '{!r}'.format(1) ~ ('{!r}' * 10000).format(1) }}",
        "{{ strftime_now('%3d' * 10000) }}",
    ],
)
def test_so_is_what_a_template_asks_for(template):
    with pytest.raises(ValueError, match="the chat template failed") as caught:
        render(template)
    assert len(str(caught.value)) < 400


def test_no_template_is_said():
    with pytest.raises(ValueError, match="no chat template"):
        render_chat(Vocabulary(None), HI)
