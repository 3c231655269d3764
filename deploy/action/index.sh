#!/usr/bin/env bash
# Index the book. Vectors of chunks that are in the cached index are not computed again.
set -euo pipefail

arguments=("$BOOK" --collection "$COLLECTION")
while IFS= read -r option; do
  [[ -z $option ]] || arguments+=("$option")
done <<< "$OPTIONS"
recto index "${arguments[@]}"
