# Spark starts every JVM with jdk.incubator.vector, and Java warns of that on every start; there is no option against it.
# This line alone is left out of the error stream.
exec 2> >(exec grep --line-buffered --invert-match '^WARNING: Using incubator modules: jdk.incubator.vector$' >&2)
