package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// unpack reads a tar; directories have no content.
func unpack(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s has a time or an owner: %+v", h.Name, h)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// image is one as who loads it sees it.
type image struct {
	t     *testing.T
	files map[string][]byte // of the archive
}

func loadImage(t *testing.T, archive []byte) *image {
	t.Helper()
	im := &image{t, unpack(t, bytes.NewReader(archive))}
	if got := string(im.files["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %q", got)
	}
	return im
}

// blob is the content that a descriptor names, which must be what it says.
func (im *image) blob(d descriptor, mediaType string) []byte {
	im.t.Helper()
	content, ok := im.files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if !ok || digest(content) != d.Digest || int64(len(content)) != d.Size || d.MediaType != mediaType {
		im.t.Fatalf("%+v describes %d bytes with digest %s", d, len(content), digest(content))
	}
	return content
}

func decode[T any](t *testing.T, content []byte) (v T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// open is the image's name, its configuration, and the files of its layer.
func (im *image) open() (names map[string]string, c config, root map[string][]byte) {
	im.t.Helper()
	top := decode[index](im.t, im.files["index.json"])
	if len(top.Manifests) != 1 || top.MediaType != typeIndex {
		im.t.Fatalf("index: %+v", top)
	}
	m := decode[manifest](im.t, im.blob(top.Manifests[0], typeManifest))
	if len(m.Layers) != 1 {
		im.t.Fatalf("manifest: %+v", m)
	}
	c = decode[config](im.t, im.blob(m.Config, typeConfig))
	z, err := gzip.NewReader(bytes.NewReader(im.blob(m.Layers[0], typeLayer)))
	if err != nil {
		im.t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil {
		im.t.Fatal(err)
	}
	if len(c.RootFS.DiffIDs) != 1 || c.RootFS.DiffIDs[0] != digest(layer) {
		im.t.Errorf("root file system %+v, the layer is %s", c.RootFS, digest(layer))
	}
	return top.Manifests[0].Annotations, c, unpack(im.t, bytes.NewReader(layer))
}

// TestImage makes the image and starts what is in it with nothing else of this host.
func TestImage(t *testing.T) {
	to := filepath.Join(t.TempDir(), "image.tar")
	s := imageSpec{Name: "docker.io/library/baton:v1", Arch: runtime.GOARCH}
	if err := makeImage(t.Context(), to, s); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	names, c, root := loadImage(t, archive).open()
	if names[nameOfOCI] != "v1" || names[nameOfContainerd] != s.Name {
		t.Errorf("names: %v", names)
	}
	if c.Architecture != s.Arch || c.OS != "linux" {
		t.Errorf("platform: %+v", c.platform)
	}
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(root)) { // directories before what is in them
		content := root[name]
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(filepath.Join(dir, name), 0o755)
		} else {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(c.Config.Entrypoint[0], "version")
	cmd.Env, cmd.Dir = c.Config.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("linux/%s\n", runtime.GOARCH); err != nil || !strings.HasPrefix(string(out), "baton ") || !strings.HasSuffix(string(out), want) {
		t.Errorf("baton version: %v, %q", err, out)
	}

	s.Binary = root[binaryPath]
	var again bytes.Buffer
	if err := writeImage(&again, s); err != nil || !bytes.Equal(again.Bytes(), archive) {
		t.Errorf("made once more it is another archive (%v)", err)
	}
}

// The image says of itself what Containerfile says.
func TestLikeContainerfile(t *testing.T) {
	text, err := os.ReadFile("Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := writeImage(&b, imageSpec{Name: "docker.io/library/baton:v1", Arch: "arm64"}); err != nil {
		t.Fatal(err)
	}
	_, c, root := loadImage(t, b.Bytes()).open()
	for _, want := range []string{
		"ENV " + c.Config.Env[0] + "\n",
		fmt.Sprintf("ENTRYPOINT [%q]\n", c.Config.Entrypoint[0]),
		"COPY --from=build /baton /" + binaryPath + "\n",
		`CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w" `,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("Containerfile does not say %q", want)
		}
	}
	if _, ok := root[binaryPath]; !ok || len(c.Config.Env) != 1 || len(c.Config.Entrypoint) != 1 || c.Architecture != "arm64" {
		t.Errorf("configuration %+v", c)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "baton", "baton:v1", "docker.io/library/baton"} {
		if err := makeImage(t.Context(), filepath.Join(t.TempDir(), "image.tar"), imageSpec{Name: name}); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}
