#!/usr/bin/env bash
# Builds dist/: a .deb, an .rpm and a tarball for each architecture and program (trireme, trireme-lab), the Helm chart, the raw results of fault campaigns if there are any, and their checksums.
#   VERSION         default: the newest tag vX.Y.Z, else 0.0.0~git<day of the commit>.<commit>
#   PACKAGE_ARCHS   default: this machine's; "amd64 arm64" for both
#   PACKAGE_CHART   no: without the chart, whose tool takes minutes to build the first time
# The tools are Go programs of the versions in packaging/*.mod.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/go/bin

say() { printf 'package.sh: %s\n' "$*" >&2; }

# Dates in the packages are the commit's, so the same commit gives the same files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
version() {
  local tag
  tag=$(git describe --tags --match 'v[0-9]*' --exact-match 2>/dev/null || true)
  [[ -n $tag ]] && { echo "${tag#v}"; return; }
  echo "0.0.0~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
}
VERSION=${VERSION:-$(version)}
archs=${PACKAGE_ARCHS:-$(go env GOARCH)}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
out=$PWD/dist
rm -rf "$out"
mkdir -p "$out"

# stage DIR ARCH: everything that is not in the sources, and what the tarball holds; in DIR/lab that of trireme-lab.
stage() {
  local dir=$1 arch=$2
  mkdir -p "$dir"/{man,completion,doc,deb,lab/bin,lab/man,lab/completion,lab/deb}
  make -s build GOARCH="$arch" BIN="$dir/bin" LDFLAGS="-s -w -X main.version=$VERSION" # stacks keep their names and lines
  mv "$dir/bin/trireme-lab" "$dir/lab/bin/"
  # Pages and scripts are made by programs that run here.
  make -s build BIN="$tmp/host" GOARCH="$(go env GOHOSTARCH)"
  written trireme "$dir"
  written trireme-lab "$dir/lab"
  cp README.md LICENSE "$dir/doc/"
  cp -r docs "$dir/doc/docs"
  cp -r packaging/monitoring "$dir/doc/monitoring"
  cp -r packaging/examples "$dir/doc/examples"
  # Measurements are read where they were made.
  rm -rf "$dir"/doc/docs/benchmarks "$dir"/doc/docs/safety/results
  {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: trireme\n\nFiles: *\n'
    printf 'Copyright: %s the authors of Trireme and of the modules that docs/dependencies.md names\nLicense: Apache-2.0\n' "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y)"
    printf ' On Debian systems the text of the Apache License, version 2.0, is in\n /usr/share/common-licenses/Apache-2.0.\n'
  } >"$dir/deb/copyright"
  find "$dir" -type d -exec chmod 755 {} +
  find "$dir" -type f ! -path '*/bin/*' -exec chmod 644 {} +
}

# written PROGRAM DIR: man pages, completion, and Debian's changelog.
written() {
  "$tmp/host/$1" manual "$2/man"
  gzip -9n "$2"/man/*.1
  "$tmp/host/$1" completion bash >"$2/completion/$1.bash"
  "$tmp/host/$1" completion zsh >"$2/completion/_$1"
  "$tmp/host/$1" completion fish >"$2/completion/$1.fish"
  printf '%s (%s) unstable; urgency=medium\n\n  * What has changed is in the history of the sources.\n\n -- The Trireme project <trireme@localhost.localdomain>  %s\n' \
    "$1" "$VERSION" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$2/deb/changelog.gz"
}

# tarball DIR ARCH: the same for a host without a package manager of these two kinds.
tarball() {
  local name=trireme-$VERSION-linux-$2
  local root=$tmp/tar/$name
  mkdir -p "$root"
  cp -r "$1"/bin "$1"/man "$1"/completion "$1"/doc/. "$root"
  mkdir "$root/systemd"
  cp packaging/*.service packaging/trireme.tmpfiles "$root/systemd/"
  packed "$name"
  name=trireme-lab-$VERSION-linux-$2
  mkdir -p "$tmp/tar/$name"
  cp -r "$1"/lab/bin "$1"/lab/man "$1"/lab/completion LICENSE "$tmp/tar/$name"
  packed "$name"
}

packed() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$tmp/tar" -c "$1" | gzip -9n >"$out/$1.tar.gz"; }

# chart: linted and rendered before it is packed.
chart() {
  local helm=(go tool -modfile=packaging/helm.mod helm)
  say "lint and render the chart (the first time builds helm)"
  "${helm[@]}" lint packaging/helm/trireme >&2
  "${helm[@]}" template db packaging/helm/trireme --kube-version 1.33.0 >"$tmp/rendered.yaml"
  "${helm[@]}" package packaging/helm/trireme --destination "$out" >&2
}

for arch in $archs; do
  say "trireme $VERSION for $arch"
  STAGE=$tmp/$arch
  stage "$STAGE" "$arch"
  export STAGE VERSION ARCH=$arch
  for kind in deb rpm; do
    for config in nfpm nfpm-lab; do
      go tool -modfile=packaging/nfpm.mod nfpm package --config packaging/$config.yaml --packager "$kind" --target "$out/" >&2
    done
  done
  tarball "$STAGE" "$arch"
done
[[ ${PACKAGE_CHART:-yes} == no ]] || chart
if compgen -G 'docs/safety/results/*.jsonl' >/dev/null; then # of the campaigns that docs/safety/report.md counts: not in git
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C docs/safety -c results | gzip -9n >"$out/trireme-$VERSION-safety-results.tar.gz"
fi
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out" >&2
