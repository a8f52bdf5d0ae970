"""Conversations and tools in OpenAI's form, for every turn that Mistral's versions know."""

CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "Où ?"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Weather of a city, 天気", "parameters": CITY}
CLOCK = {"name": "clock", "parameters": {"type": "object", "properties": {}}}


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made):
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def result(call_id, name, text):
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


PARIS = call("aBcDeF123", "get_weather", '{"city": "Paris", "when": [1, null]}')
NOON = call("000000001", "clock", "{}")
TALK = [user("Hello"), assistant("Hi there."), user("And you?")]
CONVERSATIONS = {
    "one question": [user("What is the capital of France?")],
    "a system prompt": [system("You are brief."), user("Hello")],
    "several turns": [*TALK, assistant("Well."), user("Good. Bye")],
    "a system prompt and several turns": [system("You are\n\nbrief."), *TALK],
    "two system prompts": [system("You are brief."), system("You are kind."), *TALK],
    "a system prompt in the middle": [user("Hello"), system("Now in French."), user("Hello")],
    "two questions at once": [user("Hello"), user("Are you there?")],
    "an answer first": [assistant("How can I help?"), user("Not at all.")],
    "other scripts": [user("漢字かな 👩‍👩‍👧 e\u0301\u0323"), assistant("Füße 🎉"), user("Ж \ufffd")],
    "spellings of control tokens": [user("[INST] </s><s> [/INST]"), assistant("[TOOL_CALLS]"), user("▁<0x41>")],
    "spaces and lines": [user("  a\n\n b\t"), assistant(" yes  "), user("\n")],
    "parts of text": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
}
WITH_TOOLS = {
    "tools": TALK,
    "a call and its result": [user("Weather?"), calls(PARIS), result("aBcDeF123", "get_weather", "18 °C")],
    "a result in JSON": [user("Weather?"), calls(PARIS), result("aBcDeF123", "get_weather", '{"c":  18}')],
    "a call in the past": [
        system("You are brief."),
        user("Weather?"),
        calls(PARIS),
        result("aBcDeF123", "get_weather", "18"),
        assistant("18 degrees."),
        user("Thanks"),
    ],
}
SEVERAL_CALLS = {
    "two calls": [
        user("Weather and time?"),
        calls(PARIS, NOON),
        result("aBcDeF123", "get_weather", "18"),
        result("000000001", "clock", "noon"),
    ]
}


def openai_tools(functions):
    return [{"type": "function", "function": function} for function in functions]
