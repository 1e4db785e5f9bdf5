"""Whole process trees and the fresh machines that attempts live on."""

from samestep.process.copying import copy_tree, fingerprint, tree_digest
from samestep.process.isolation import Capability, Isolation, capabilities
from samestep.process.machine import Machine, Site
from samestep.process.preloaded import Preloaded
from samestep.process.python_command import PythonCommand
from samestep.process.surroundings import OFFLINE_VARIABLES
from samestep.process.tree import ProcessTree, kill_all_trees

__all__ = [
    "OFFLINE_VARIABLES",
    "Capability",
    "Isolation",
    "Machine",
    "Preloaded",
    "ProcessTree",
    "PythonCommand",
    "Site",
    "capabilities",
    "copy_tree",
    "fingerprint",
    "kill_all_trees",
    "tree_digest",
]
