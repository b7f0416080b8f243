package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Media types of the image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Names by which who loads the archive calls the image: podman and skopeo by the first,
// containerd by the second.
const (
	nameOfOCI        = "org.opencontainers.image.ref.name"
	nameOfContainerd = "io.containerd.image.name"
)

// binaryPath is where the binary is in the image. The PATH is for `kubectl exec POD -- baton flows`.
const binaryPath = "usr/bin/baton"

// imageSpec is what goes into an image.
type imageSpec struct {
	Name   string // with its tag: docker.io/library/baton:v1
	Arch   string // as Go calls it
	Binary []byte
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type config struct {
	platform
	Config runConfig `json:"config"`
	RootFS rootFS    `json:"rootfs"`
}

type runConfig struct {
	Env        []string `json:"Env"`
	Entrypoint []string `json:"Entrypoint"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// archive collects the blobs of an image, each under its digest.
type archive struct {
	blobs []blob
}

type blob struct {
	digest  string
	content []byte
}

// add takes a blob and describes it.
func (a *archive) add(mediaType string, content []byte) descriptor {
	d := digest(content)
	a.blobs = append(a.blobs, blob{d, content})
	return descriptor{MediaType: mediaType, Digest: d, Size: int64(len(content))}
}

func (a *archive) addJSON(mediaType string, v any) (descriptor, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return a.add(mediaType, content), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// writeImage writes an image as an archive of the OCI image layout.
func writeImage(w io.Writer, s imageSpec) error {
	files, err := layer(s.Binary)
	if err != nil {
		return fmt.Errorf("pack the layer: %w", err)
	}
	packed, err := compress(files)
	if err != nil {
		return fmt.Errorf("compress the layer: %w", err)
	}
	var a archive
	on := platform{s.Arch, "linux"}
	layerAt := a.add(typeLayer, packed)
	configAt, err := a.addJSON(typeConfig, config{
		platform: on,
		Config:   runConfig{Env: []string{"PATH=/usr/bin"}, Entrypoint: []string{"/" + binaryPath}},
		RootFS:   rootFS{"layers", []string{digest(files)}},
	})
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	manifestAt, err := a.addJSON(typeManifest, manifest{2, typeManifest, configAt, []descriptor{layerAt}})
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	_, tag, _ := strings.Cut(s.Name[strings.LastIndexByte(s.Name, '/')+1:], ":")
	manifestAt.Platform = &on
	manifestAt.Annotations = map[string]string{nameOfOCI: tag, nameOfContainerd: s.Name}
	top, err := json.Marshal(index{2, typeIndex, []descriptor{manifestAt}})
	if err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return a.write(w, top)
}

// write packs the layout.
func (a *archive) write(w io.Writer, top []byte) error {
	t := tar.NewWriter(w)
	err := addFile(t, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	if err == nil {
		err = addFile(t, "index.json", 0o644, top)
	}
	for _, b := range a.blobs {
		if err == nil {
			err = addFile(t, "blobs/"+strings.Replace(b.digest, ":", "/", 1), 0o644, b.content)
		}
	}
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// layer is the one of the image: the binary in its directories.
func layer(binary []byte) ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, dir := range []string{"usr/", "usr/bin/"} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := addFile(t, binaryPath, 0o755, binary); err != nil {
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// addFile adds one that is root's and has no time, for what is not said cannot differ.
func addFile(t *tar.Writer, name string, mode int64, content []byte) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

func compress(content []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
