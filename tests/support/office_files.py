"""Tiny PDF, Word, PowerPoint and EPUB files, written by hand."""

import io
import zipfile

RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf(text: str) -> bytes:
    """A page with a line of text; without text, a page as a scan has it."""
    stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else "0 0 100 100 re f"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    content, places = "%PDF-1.4\n", []
    for number, part in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj\n{part}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    return f"{content}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def docx(*paragraphs: tuple[str, str]) -> bytes:
    """Paragraphs: (style, text), such as ("Heading1", "Cats")."""
    styled = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{RELATIONSHIPS}"><Relationship Id="r1" '
            f'Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{styled}</w:body></w:document>',
        }
    )


def epub(title: str, *pages: str) -> bytes:
    """A book of HTML pages."""
    names = [f"p{i}.xhtml" for i in range(len(pages))]
    items = "".join(f'<item id="{n}" href="{n}" media-type="application/xhtml+xml"/>' for n in names)
    order = "".join(f'<itemref idref="{n}"/>' for n in names)
    metadata = f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></metadata>'
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>',
            "book.opf": f"<package>{metadata}<manifest>{items}</manifest><spine>{order}</spine></package>",
            **dict(zip(names, pages, strict=True)),
        }
    )


def pptx(*slides: tuple[str, str]) -> bytes:
    """Slides: (title, text). Written by python-pptx, which comes with the extra `documents`."""
    import pptx

    presentation = pptx.Presentation()
    for title, text in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, text
    file = io.BytesIO()
    presentation.save(file)
    return file.getvalue()


def zipped(files: dict[str, str], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()
