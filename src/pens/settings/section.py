# SPDX-License-Identifier: Apache-2.0
"""The base class of all sections of the settings, and types of values that many settings have.

A part's own section is a subclass of `Section` (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pens.errors import SettingsError

Whole = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """One section of the settings. The docstring of a setting is its explanation, in `pens settings`, too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
    title: ClassVar[str] = ""
    """The section's name in a TOML file, where it belongs to a part (`pens.parts`)."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise SettingsError(
            f"{name} = {value!r} is set in settings that are made already, and these do not change: use "
            f"settings.replace({{{name!r}: {value!r}}}), which returns changed ones; a method does so in `resolve`"
        )

    @model_validator(mode="before")
    @classmethod
    def _lists_of_words(cls, values: Any) -> Any:
        """Where words are listed, `conv,out` is a list."""
        if not isinstance(values, Mapping):
            return values
        words = {key for key, field in cls.model_fields.items() if lists(field.annotation) is str}
        return {
            key: [word.strip() for word in value.split(",") if word.strip()]
            if key in words and isinstance(value, str)
            else value
            for key, value in values.items()
        }


def lists(of: Any) -> Any:
    """What a type lists: of `list[str]`, `tuple[str, ...]` and `list[str] | None` that is `str`. None: no list."""
    if get_origin(of) in (UnionType, Union):
        found = [lists(each) for each in get_args(of)]
        return next((each for each in found if each is not None), None)
    if get_origin(of) is Annotated:
        return lists(get_args(of)[0])
    if of in (list, tuple):
        return Any
    return get_args(of)[0] if get_origin(of) in (list, tuple, Sequence) else None


class UnknownSection(Section):
    """The section of a part that is not installed here. Its values are kept as they are."""

    model_config = ConfigDict(extra="allow")
