"""Why the detour works: where models differ, and which of their parts make the difference."""
