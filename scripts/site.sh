#!/usr/bin/env bash
# Makes a site of the documents and of the pages that play kernels.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/site.sh

Makes build/site of README.md, docs/, results/README.md and the pages of scripts/watch.sh --preset.
The line <!-- watch NAME --> in a page becomes that preset's page. Links to other files lead to the
repository, where CITATION.cff has its address, else to copies. Nothing comes from another host.

Exit status: 0; 2 usage; 3 an error, also a link or a picture that leads nowhere; 77 without g++.
END
}
case "$*" in
    "") ;;
    -h | --help) show_usage ;;
    *) die 2 "no argument is expected (--help shows the usage)" ;;
esac
ensure_site
pages=build/site_pages
rm -rf build/site $pages
mkdir -p $pages/build/watch
scripts/watch.sh --list | while read -r preset question; do
    scripts/watch.sh --preset "$preset" >&2 </dev/null
    echo "- [$question]($preset.html)"
done | sed '1i # Kernels to watch\n' >$pages/build/watch/index.md
find ./*.md build/watch docs results scripts/site tests/data -regex '.*\.\(css\|html\|md\|svg\)' \
    -exec cp --parents -t $pages {} +
rm $pages/docs/slides/*.md
find docs/slides -name '*.html' -printf '- [%f](%f)\n' | sort |
    sed '1i # Slides\n' >$pages/docs/slides/index.md
"$FOUND_PYTHON" scripts/site/make_site.py || die 3 "the site is not whole"
echo "build/site: python3 -m http.server --directory build/site shows it at localhost:8000"
