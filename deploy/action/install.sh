#!/usr/bin/env bash
# Install the version of Recto that this action belongs to, and choose the directory of its indexes.
set -euo pipefail

python -m pip install --quiet --disable-pip-version-check "$GITHUB_ACTION_PATH${EXTRAS:+[$EXTRAS]}"
{
  echo "version=$(python -c 'import recto; print(recto.__version__)')"
  echo "home=$RUNNER_TEMP/recto"
} >> "$GITHUB_OUTPUT"
