"""What Sphinx is told: the pages are the repository's Markdown as it lies there, under Furo's light and dark."""

import contents

project = "lockstep"
root_doc = "README"
html_title = "lockstep"
include_patterns = contents.PATTERNS
extensions = ["myst_parser", "sphinx_copybutton", "boxes", "contents", "files"]

myst_heading_anchors = 4  # a heading's anchor is GitHub's
myst_links_external_new_tab = False
myst_url_schemes = ("http", "https", "mailto")

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = html_show_copyright = False
html_theme_options = {"navigation_with_keys": True, "source_repository": ""}
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
highlight_language = "text"  # of a block that names none
smartquotes = False  # what stands in quotes may be typed
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
