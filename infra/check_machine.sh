#!/usr/bin/env bash
# Says what is missing on this machine and how to get it. Usage: check_machine.sh PYTHON
set -u
python=${1:-python3.11}
missing=0

if ! "$python" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
  echo "setup: Python 3.11 with venv is needed, and '$python' is not it." >&2
  echo "       Debian/Ubuntu: sudo apt-get install python3.11 python3.11-venv    macOS: brew install python@3.11" >&2
  echo "       If it has another name here: make setup PYTHON=/path/to/python3.11" >&2
  missing=1
fi

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
if [ -z "$version" ]; then
  echo "setup: Java 17 is needed (Spark runs on it), and there is no '$java'." >&2
  echo "       Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless    macOS: brew install openjdk@17" >&2
  echo "       If it is installed elsewhere, set JAVA_HOME to its folder." >&2
  missing=1
elif [ "$version" -lt 17 ]; then
  echo "setup: Java 17 or newer is needed (Spark 4 runs on it), '$java' is version $version." >&2
  echo "       Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless, then set JAVA_HOME to it." >&2
  missing=1
fi
exit $missing
