# SPDX-License-Identifier: Apache-2.0
"""The exceptions that pens raises on purpose, as one tree, and what their messages have in common.

    PensError
    ├── SettingsError      a setting, or a combination of settings, that cannot work
    ├── DataError          data that cannot be used
    │   ├── DataNotFound   no folder holds the data set, and it could not be downloaded
    │   ├── DataCorrupt    a file is truncated, damaged or of another format
    │   └── NotEnoughData  a partition asks for more samples than the data set has
    ├── ModelError         an nn.Module that a stack of models cannot run
    ├── DeviceError        a device or compiler that this machine does not have
    ├── PayloadError       bytes from another peer that are not a valid model
    │   └── OtherNetwork   a valid model, but of another network
    ├── RunDirError        a run directory that is taken, missing, damaged or of other settings
    │   └── DiskError      a file that the disk does not take now; a TemporaryError, too
    ├── TemporaryError     what may pass by itself: a full disk, a folder or an address that is in use
    ├── ResultError        a run, peer or model that a result does not have
    ├── MissingPackage     a package that is not installed, and that only some functions need
    ├── ReportError        a report that cannot be written
    ├── CertificateError   a certificate, key or revocation list that is missing, damaged, taken or not to be trusted
    ├── TransportError     another member that cannot be reached, or is not who it should be
    │   └── AddressError   an address at which this machine cannot listen now; a TemporaryError, too
    └── Interrupted        the user asked for a stop; the run can be resumed

Each message gives the value, the bound and the remedy, so that its reader can act on it without further help. The
command line prints the message and nothing else, and exits with the error's `exit_status`, which tells a unit file
whether to start the process again. Any other exception is a bug and keeps its traceback, with exit status 1.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class PensError(Exception):
    """Base of all errors that pens raises on purpose."""

    exit_status = 2
    """Of the command: a person has to change something before it is worth starting again."""


class SettingsError(PensError):
    """A setting, or a combination of settings, that cannot work."""


class DataError(PensError):
    """Data that cannot be used."""


class DataNotFound(DataError):
    """A data set that is in none of the folders searched and could not be downloaded."""


class DataCorrupt(DataError):
    """A data file that is truncated, damaged or not of the format that its name says."""


class NotEnoughData(DataError):
    """A partition that asks for more samples than the data set has."""


class ModelError(PensError):
    """An nn.Module that a stack of models cannot run."""


class DeviceError(PensError):
    """A device that this machine does not have, or a compiler that does not work on it."""


class PayloadError(PensError):
    """Bytes that are not a model of the expected shape, or a model that cannot be put into bytes."""


class OtherNetwork(PayloadError):
    """A model whose tensors have other names, shapes or types than ours: the sender has another network."""


class RunDirError(PensError):
    """A run directory that cannot be written, read or resumed."""


class TemporaryError(PensError):
    """What may pass without anybody changing a setting. Starting again later may help."""

    exit_status = 75  # EX_TEMPFAIL of sysexits.h


class DiskError(TemporaryError, RunDirError):
    """A file that cannot be written now, because the disk is full or fails. What was there before is complete."""


class ResultError(PensError):
    """A run, peer or model that a result does not have."""


class MissingPackage(PensError, ImportError):
    """A package that is not installed, and that only some functions need."""


class ReportError(PensError):
    """A report that cannot be written where it should be."""


class CertificateError(PensError):
    """A certificate, key or revocation list that is missing, damaged, taken or not to be trusted."""


class TransportError(PensError):
    """Another member that cannot be reached, or is not who it should be."""


class AddressError(TemporaryError, TransportError):
    """An address at which this machine cannot listen now: something else uses it, or the network is not up yet."""


class Interrupted(PensError):
    """The user asked for a stop. What was done is on disk and can be resumed."""

    exit_status = 130


class PensWarning(UserWarning):
    """Something in a run that its user should know, told when it happens. `RunResult.warnings` has all of it."""


_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE}


def may_pass(number: int | None) -> bool:
    """Whether an error of the operating system, by its number, may pass without anybody changing a setting."""
    return number in _PASSING


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of an error message that suggests the known name most like `name`; empty where none is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
