"""Format names for display: no control character of a file reaches the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from torchprof_tui.ui.common.name_display import DisplayNames, clean, shorten, truncate


@given(st.text(max_size=40))
def test_clean_text_is_one_printable_line(text: str) -> None:
    shown = clean(text)
    assert len(shown) == len(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in shown)


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "a\nb", "a\tb", "bell\x07", "\u202eevil", "e\u0301", "\udcff", "\x9b2J"]
)
def test_control_characters_become_a_dot(text: str) -> None:
    shown = clean(text)
    assert "·" in shown
    assert not any(character in shown for character in "\x1b\n\t\x07\u202e\u0301\udcff\x9b")


@given(st.text(max_size=30), st.integers(0, 20))
def test_truncated_text_fits_into_its_width(text: str, width: int) -> None:
    shown = truncate(clean(text), width)
    assert cell_len(shown) <= width
    if cell_len(clean(text)) <= width:
        assert shown == clean(text)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "mm"),
        ("/usr/lib/python3/torch/nn/modules/module.py(1783): _call_impl", "_call_impl module.py:1783"),
        ("train.py(12): <module>", "<module> train.py:12"),
        ("nn.Module: Linear_3", "Linear_3"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"),
        (
            "void at::native::(anonymous namespace)::softmax_warp_forward<float, 8>(float*, int)",
            "softmax fwd fp32",
        ),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::Add>(int)", "add"),
        ("<built-in method run_backward of torch._C._EngineBase object at 0x7f11>", None),
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("void ", "void "),
        ("<>", "<>"),
        ("", ""),
    ],
)
def test_short_names_keep_the_distinctive_part(name: str, short: str | None) -> None:
    if short is None:
        assert shorten(name) == "built-in method run_backward of torch._C._EngineBase"
    else:
        assert shorten(name) == short


@given(st.text(max_size=40))
def test_short_never_loses_a_whole_name(name: str) -> None:
    assert bool(shorten(name)) == bool(name)


def test_the_whole_name_where_it_fits() -> None:
    names = DisplayNames(["aten::mm", "a\x1bb", "日本語のカーネル"])
    assert names.fit_name(0, 8) == "aten::mm"
    assert names.fit_name(0, 7) == "mm"
    assert names.fit_name(1, 5) == "a·b"
    assert names.fit_name(2, 7) == "日本語…"
