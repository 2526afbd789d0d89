"""The filter of system calls, read as the kernel reads it, for processors that are not this one as
well.
"""

from __future__ import annotations

import socket
import struct

import pytest

from fugu_cli.safety.sandbox.confinement import (
    APART,
    MACHINES,
    NETWORK,
    SeccompMachine,
    filter_program,
)

ALLOWED, REFUSED, ABSENT = "allowed", "EPERM", "ENOSYS"
SAID = {0x7FFF0000: ALLOWED, 0x00050001: REFUSED, 0x00050026: ABSENT}
VSOCK, PACKET, ALG = 40, 17, 38


def verdict(program: bytes, audit: int, number: int, family: int = 0) -> str:
    """What the program says of a call with this number and first argument, made on the processor
    `audit`.
    """
    lines = [struct.unpack("HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    given = struct.pack("=IIQQ", number, audit, 0, family)
    at, value = 0, 0
    while True:
        code, true, false, operand = lines[at]
        at += 1
        match code:
            case 0x20:
                value = struct.unpack("=I", given[operand : operand + 4])[0]
            case 0x15:
                at += true if value == operand else false
            case 0x35:
                at += true if value >= operand else false
            case 0x06:
                return SAID[operand]
            case _:
                raise AssertionError(f"an instruction {code:#x} that the filter does not use")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
def test_only_named_families_and_neither_rings_nor_keyrings_are_let_through(
    machine: SeccompMachine,
) -> None:
    for families, unix in ((APART, ALLOWED), (NETWORK, REFUSED), ((), REFUSED)):
        program = filter_program(machine, families)
        made = {
            family: verdict(program, machine.audit, machine.socket, family)
            for family in (VSOCK, PACKET, ALG)
        }
        assert made == dict.fromkeys((VSOCK, PACKET, ALG), REFUSED)
        assert verdict(program, machine.audit, machine.socket, socket.AF_UNIX) == unix
        assert verdict(program, machine.audit, machine.socket, socket.AF_INET) == (
            ALLOWED if families else REFUSED
        )
        assert [verdict(program, machine.audit, number) for number in (425, 426, 427)] == [
            ABSENT
        ] * 3
        assert {verdict(program, machine.audit, number) for number in machine.keys} == {REFUSED}
        others = set(range(470)) - {425, 426, 427, machine.socket, *machine.keys}
        assert {verdict(program, machine.audit, number) for number in others} == {ALLOWED}
        assert (
            verdict(program, machine.audit, 0x40000000 | machine.socket, socket.AF_INET) == REFUSED
        )
        assert verdict(program, 0x40000003, machine.socket, socket.AF_INET) == REFUSED


def test_the_numbers_are_those_of_the_kernels_headers() -> None:
    table = {
        name: (machine.audit, machine.socket, machine.keys) for name, machine in MACHINES.items()
    }
    assert table == {
        "x86_64": (0xC000003E, 41, (248, 249, 250)),
        "aarch64": (0xC00000B7, 198, (217, 218, 219)),
        "riscv64": (0xC00000F3, 198, (217, 218, 219)),
    }
