#!/usr/bin/env bash
# Run the suite, and put the report into the job summary. A later step fails the job if the validation failed.
set -euo pipefail

report="$RUNNER_TEMP/recto-report.md"
junit="$RUNNER_TEMP/recto-junit.xml"
arguments=(--suite "$SUITE" --collection "$COLLECTION" --markdown "$report" --junit "$junit")
if [[ -n $BASELINE && -f $BASELINE ]]; then
  arguments+=(--baseline "$BASELINE")
elif [[ -n $BASELINE ]]; then
  echo "::warning::There is no baseline $BASELINE, so nothing is compared. Write it with \`recto validate --update-baseline\`."
fi
while IFS= read -r option; do
  [[ -z $option ]] || arguments+=("$option")
done <<< "$OPTIONS"

code=0
recto validate "${arguments[@]}" || code=$?
case $code in
  0) passed=true ;;
  5) passed=false ;;
  *) exit "$code" ;;
esac
cat "$report" >> "$GITHUB_STEP_SUMMARY"
{
  echo "passed=$passed"
  echo "report=$report"
  echo "junit=$junit"
} >> "$GITHUB_OUTPUT"
