# shellcheck shell=bash
# The page that a run leaves at its end: LOCKSTEP_REPORT=leave, or mail:ADDRESS. Whatever becomes of it, the job's exit
# status stays the run's.

# Refused before anything trains: a word that nobody reads is no report.
check_report() {
  [[ ${LOCKSTEP_REPORT:-leave} =~ ^(leave|mail:[^[:space:]-][^[:space:]]*)$ ]] \
    || die "LOCKSTEP_REPORT=$LOCKSTEP_REPORT: leave or mail:ADDRESS is wanted"
}

# make_report RUN_FOLDER STATUS: a run that goes on by itself (75) is mailed when it has ended.
make_report() {
  local page=$1/report.html
  [ -n "${LOCKSTEP_REPORT:-}" ] || return 0
  timeout 120 "$LOCKSTEP_PROGRAM" report "$1" --out "$page" >/dev/null || { say "warning: no report of $1 could be made"; return 0; }
  say "the report: $page"
  [ "$LOCKSTEP_REPORT" = leave ] || [ "$2" -eq 75 ] || mail_report "${LOCKSTEP_REPORT#mail:}" "$page" "lockstep: ${1##*/} ended with status $2"
  return 0
}

# mail_report ADDRESS PAGE SUBJECT: as an attachment, since mail readers show no style of a page's own.
mail_report() {
  local sendmail
  sendmail=$(PATH=$PATH:/usr/sbin:/usr/lib command -v sendmail)
  if [ -n "$sendmail" ]; then
    report_message "$@" | timeout 60 "$sendmail" -i -- "$1" || { say "warning: sendmail could not send the report to $1"; return 0; }
  elif command -v mail >/dev/null; then
    printf 'The report is on the cluster: %s\n' "$2" | timeout 60 mail -s "$3" -- "$1" \
      || { say "warning: mail could not send word to $1"; return 0; }
  else
    say "warning: neither sendmail nor mail is here: the report stays where it is"
    return 0
  fi
  say "mailed to $1"
}

report_message() {
  local mark="lockstep-$$-$RANDOM" name
  name=$(printf '%s' "$3" | tr -d '\r\n')
  printf 'To: %s\nSubject: %s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="%s"\n\n' "$1" "$name" "$mark"
  printf -- '--%s\nContent-Type: text/plain; charset=utf-8\n\n%s\n%s\n\n' "$mark" "$name" "$2"
  printf -- '--%s\nContent-Type: text/html; charset=utf-8; name="report.html"\nContent-Transfer-Encoding: base64\n' "$mark"
  printf 'Content-Disposition: attachment; filename="report.html"\n\n'
  base64 <"$2"
  printf -- '\n--%s--\n' "$mark"
}
