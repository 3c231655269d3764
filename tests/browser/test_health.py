"""The health of an index, drawn from what the commands have measured."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from playwright.sync_api import Browser, expect

from recto import records
from recto.evaluation.coverage import cover
from recto.evaluation.run import run_suite
from recto.protocols import Embedder
from recto.retriever import Retriever
from recto.settings import Settings
from recto.stores.edge.store import EdgeStore
from tests.breaking import Passages, publish_broken
from tests.browser.desk import PHONE, Desk
from tests.http.service import Service
