# SPDX-License-Identifier: Apache-2.0
"""The base class of all sections of the settings, and types of values that many settings have.

A part's own section is a subclass of `Section` (docs/extending.md).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """One section of the settings. The docstring of a setting is its explanation, in `pens settings`, too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
    title: ClassVar[str] = ""
    """The section's name in a TOML file, where it belongs to a part (`pens.parts`)."""


class UnknownSection(Section):
    """The section of a part that is not installed here. Its values are kept as they are."""

    model_config = ConfigDict(extra="allow")
