"""Switch off the telemetry of the frameworks."""

from __future__ import annotations

import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when the package is imported
os.environ["LANGSMITH_TRACING"] = "false"
