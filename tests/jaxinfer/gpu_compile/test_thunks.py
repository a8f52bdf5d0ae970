"""XLA's list of launches, every form of line."""

from jaxinfer.gpu_compile.thunks import Launch, parse_instruction_names, parse_thunks

SEQUENCE = """\
000: kCommandBuffer [source       | next=010 (1)]
    001: kCustomKernel [source       | next=002 (1)] first grid: [64, 1, 1] threads: [128, 1, 1]  shared_memory: 0 bytes
    002: kCopy         [prev=001 (1) | sink        ] kCopy
010: kWhile         [prev=000 (1) | next=020 (1)]
condition:
    011: kKernel [source | sink] in_condition grid: [1, 1, 1] threads: [1, 1, 1]  shared_memory: 0 bytes
  body:
    000: kCommandBuffer [source | sink]
        012: kCustomKernel [source | sink] in_body grid: [4, 2, 3] threads: [8, 16, 2]  shared_memory: 16384 bytes
020: kAsyncStart   [prev=010 (1) | sink        ] stream=computation_stream[0], async_id=5
    022: kDynamicSliceFusion [source | sink] params=1, results=1
        021: kCopy [source | sink] kCopy
023: kGemm         [prev=010 (1) | sink        ]
024: kAsyncDone    [source       | sink        ] async_id=5
"""


def test_kinds_in_the_order_of_launch():
    assert [(thunk.id, thunk.kind) for thunk in parse_thunks(SEQUENCE)] == [
        (0, "kCommandBuffer"),
        (1, "kCustomKernel"),
        (2, "kCopy"),
        (10, "kWhile"),
        (11, "kKernel"),
        (0, "kCommandBuffer"),
        (12, "kCustomKernel"),
        (20, "kAsyncStart"),
        (22, "kDynamicSliceFusion"),
        (21, "kCopy"),
        (23, "kGemm"),
        (24, "kAsyncDone"),
    ]


def test_how_kernels_are_launched():
    launches = [thunk.launch for thunk in parse_thunks(SEQUENCE) if thunk.launch]
    assert [launch.name for launch in launches] == ["first", "in_condition", "in_body"]
    assert launches[-1] == Launch(name="in_body", grid=(4, 2, 3), threads=(8, 16, 2), shared_bytes=16384)


def test_what_contains_what():
    parents = {thunk.id: [parent.id for parent in thunk.parents] for thunk in parse_thunks(SEQUENCE)}
    assert [parents[id] for id in (1, 2, 10, 11, 12, 21, 23)] == [[0], [0], [], [10], [10, 0], [20, 22], []]


def test_what_launches_something():
    thunks = parse_thunks(SEQUENCE)
    assert [thunk.id for thunk in thunks if not thunk.is_container] == [1, 2, 11, 12, 21, 23]
    assert sum(thunk.is_command_buffer for thunk in thunks) == 2


def test_a_kind_that_is_not_known_counts_as_a_launch():
    [thunk] = parse_thunks("007: kSomethingNew [source | sink] x=1\n")
    assert not thunk.is_container


def test_the_instruction_of_a_thunk():
    text = """
thunk_metadata {
  thunk_info {
    profile_annotation: "loop_add_fusion.2"
    thunk_id: 12
  }
  thunk_kind: "kCustomKernel"
}
thunk_metadata {
  thunk_info {
    profile_annotation: "pallas_call.4"
    thunk_id: 3
  }
  thunk_kind: "kCustomKernel"
}
"""
    assert parse_instruction_names(text) == {12: "loop_add_fusion.2", 3: "pallas_call.4"}
