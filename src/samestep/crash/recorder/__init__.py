"""Recording what a process tree does to files, operation by operation, without its help and without privileges.

A supervisor runs the command as its child below a seccomp filter that reports every system call which can change a
file. The caller of such a call waits in the kernel until the supervisor has answered, so there is one queue, and one
order, for the whole tree: all ranks, children, and programs in any language. `running.record` records one command.
"""

from samestep.crash.recorder.order import Fault, Order, StopAt, counted, supervisor_command

__all__ = ["Fault", "Order", "StopAt", "counted", "supervisor_command"]
