"""The list of mutants must fit the code: one that cannot be tried shows nothing."""

from __future__ import annotations

from tests.mutants.__main__ import ROOT, ListError, Tree, read_list


def test_every_mutant_has_one_place_and_its_tests_are_there() -> None:
    tree, misfits = Tree(ROOT), []
    for mutant in read_list():
        try:
            tree.place_of(mutant)
            tree.tests_of(mutant)
        except ListError as error:
            misfits.append(str(error))
    assert misfits == []
