"""Numbers of sections are no part of headings; other numbers are."""

import pytest

from pipeline.data.readers.numbering import without_numbers


@pytest.mark.parametrize(
    ("headings", "expected"),
    [
        (["43.6.4.4. Simple CASE"], ["Simple CASE"]),
        (["43.6.\xa0Control Structures", "43.6.1.\xa0RETURN"], ["Control Structures", "RETURN"]),
        (["1 Intro", "1.1 Methods", "1.2 Data"], ["1 Intro", "Methods", "Data"]),
        (["1. Intro", "2. Methods", "3. Data"], ["Intro", "Methods", "Data"]),
        (["2. Methods", "2.1. Data"], ["Methods", "Data"]),
        (["(1) Intro", "Other"], ["(1) Intro", "Other"]),
        (["1) Intro", "2) Other"], ["Intro", "Other"]),
        (["F.1. adminpack", "E.3. Release 15.18"], ["adminpack", "Release 15.18"]),
        (["Chapter 5. Data Definition", "Anhang A. Mehr"], ["Data Definition", "Mehr"]),
        (["第 6 章 保守と更新"], ["保守と更新"]),
        (["6.1. sources.list の内容"], ["sources.list の内容"]),
        (
            ["14.5.4.3. .te ファイル", "4.2.10. 1 人目", "1.2. (Optional) Set-up"],
            [".te ファイル", "1 人目", "(Optional) Set-up"],
        ),
        (["KAPITEL 2. Daten", "part IV: More"], ["Daten", "More"]),
        # Numbers that are words.
        (["Section civil: rights", "Part x. More", "1. a"], ["Section civil: rights", "Part x. More", "1. a"]),
        (["2. Weltkrieg"], ["2. Weltkrieg"]),
        (["1. Weltkrieg", "2. Weltkrieg"], ["1. Weltkrieg", "2. Weltkrieg"]),
        (["3 ways to cook", "4 ways to eat"], ["3 ways to cook", "4 ways to eat"]),
        (["3.5 mm jacks", "2000 years"], ["3.5 mm jacks", "2000 years"]),
        (["1.2.1 - 2024-05-01", "1.2.0 (2024)"], ["1.2.1 - 2024-05-01", "1.2.0 (2024)"]),
        (["2.1 Better search", "2.0 New index"], ["2.1 Better search", "2.0 New index"]),
        (["12.05. Sitzung", "A Guide", "1.", "1. 2."], ["12.05. Sitzung", "A Guide", "1.", "1. 2."]),
        ([], []),
    ],
)
def test_only_numbers_of_sections_are_left_out(headings, expected):
    assert without_numbers(headings) == expected
