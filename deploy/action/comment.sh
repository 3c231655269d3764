#!/usr/bin/env bash
# Put the report into one comment of the pull request; later runs update it. A failure here never fails the job.
set -euo pipefail

marker="<!-- recto-report: $COLLECTION -->"
comments="$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Send a request, and print its status. Curl reads the token from standard input, because every process can see arguments.
request() {
  local method=$1 url=$2
  shift 2
  printf 'Authorization: Bearer %s\n' "$TOKEN" |
    curl --silent --show-error --max-time 30 --request "$method" --header @- \
      --header "Accept: application/vnd.github+json" --header "X-GitHub-Api-Version: 2022-11-28" \
      --header "Content-Type: application/json" \
      --output "$work/answer" --write-out '%{http_code}' "$@" "$url" || true
}

# Say why there is no comment. The report is in the job summary anyway.
give_up() {
  case $1 in
    401 | 403 | 404)
      echo "::notice::The token cannot write comments, as in pull requests from forks. The report is in the job summary."
      echo "_This report is not a comment, because the token of this job cannot write comments._" >> "$GITHUB_STEP_SUMMARY"
      ;;
    *) echo "::warning::The comment was not written (status $1). The report is in the job summary." ;;
  esac
  exit 0
}

existing=""
for page in 1 2 3 4 5 6 7 8 9 10; do
  status="$(request GET "$comments?per_page=100&page=$page")"
  [[ $status == 200 ]] || give_up "$status"
  # Only a comment of a bot is updated: anybody can write one that begins like it.
  existing="$(jq --raw-output --arg marker "$marker" \
    'first(.[] | select(.user.type == "Bot" and (.body | startswith($marker))) | .id)' "$work/answer")"
  [[ -z $existing && $(jq length "$work/answer") -eq 100 ]] || break
done

jq --null-input --arg marker "$marker" --rawfile report "$REPORT" '{body: ($marker + "\n" + $report)}' > "$work/body"
if [[ -n $existing ]]; then
  status="$(request PATCH "$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues/comments/$existing" --data-binary "@$work/body")"
else
  status="$(request POST "$comments" --data-binary "@$work/body")"
fi
[[ $status == 20[01] ]] || give_up "$status"
