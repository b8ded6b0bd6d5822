from ._versions import show_versions as show_versions

__version__: str
