"""The table of facts about operators, and what the core looks up of it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from codegen import emit, operators, parse


@pytest.fixture(scope="module")
def functions():
    return parse.native_functions()[0]


def names_of(known):
    """Every operator or overload that a fact is about, by fact. The build checks typed and hand-written ones."""
    facts = operators.facts(known, [])
    for fact in ("kHostArgument", "kNumberIsNoOperand", "kWideNumber", "kLowerBound", "kUpperBound"):
        facts[fact] = [name.split(" ")[0] for name in facts[fact]]
    facts["not_pointwise"] = sorted(known.not_pointwise)
    facts["draws_few"] = sorted(known.draws_few)
    facts["beyond_the_iterator"] = sorted(known.beyond_the_iterator)
    # In place forms are added to elementwise operators, whether or not there is one.
    elementwise = {f"{name}_" for name in known.shared_by_layouts["sparse_elementwise"]}
    return {fact: [name for name in names if name not in elementwise] for fact, names in facts.items()}


def test_every_entry_is_of_an_operator_that_there_is(functions):
    installed = {str(f.func.name) for f in functions} | {str(f.func.name.name) for f in functions}
    missing = {fact: set(names) - installed for fact, names in names_of(operators.read()).items()}
    assert not {fact: names for fact, names in missing.items() if names}


def test_host_arguments_are_tensors_of_their_operators(functions):
    arguments = {
        (str(f.func.name.name), argument.name): str(argument.type)
        for f in functions
        for argument in f.func.arguments.flat_all
        if argument.type.is_tensor_like()
    }
    listed = operators.read().host_arguments
    assert all((name, argument) in arguments for name, named in listed.items() for argument in named)


def test_numbers_are_scalars_of_their_operators(functions):
    numbers = {
        (str(f.func.name.name), argument.name)
        for f in functions
        for argument in f.func.arguments.flat_all
        if str(argument.type) in ("Scalar", "Scalar?")
    }
    listed = [each for kind in operators.read().numbers.values() for each in kind.items()]
    assert [(name, argument) for name, named in listed for argument in named if (name, argument) not in numbers] == []


def test_an_operator_is_tried_or_waited_for_and_not_both():
    known = operators.read()
    assert not known.tried & known.meta_differs


def test_generated_text(tmp_path):
    known = operators.Operators(
        meta_differs=frozenset({"b", "a"}),
        host_arguments={"lstm": ["batch_sizes"]},
        shared_by_layouts={"sparse": ["mm"], "sparse_elementwise": ["sin"]},
    )
    path = emit.emit_facts(operators.facts(known, ["bmm.out", "addmm"]), tmp_path)
    assert path.name == "OperatorFacts.cpp"
    text = path.read_text()
    assert 'kWrapperChecksDevices[] = {\n    "addmm",\n    "bmm.out",\n};' in text  # sorted: it is searched
    assert 'kMetaDiffers[] = {\n    "a",\n    "b",\n};' in text
    assert 'kHostArgument[] = {\n    "lstm batch_sizes",\n};' in text
    assert 'kSharedSparse[] = {\n    "mm",\n    "sin",\n    "sin_",\n};' in text
    assert "case Fact::kSharedNested:" in text


def test_an_unknown_section_is_refused(tmp_path):
    path = tmp_path / "operators.yaml"
    path.write_text("meta_difers: [add]")
    with pytest.raises(TypeError, match="meta_difers"):
        operators.read(path)
