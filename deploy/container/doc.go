// Command container makes the image of Containerfile with nothing but Go: it builds the
// binary and writes an archive of the OCI image layout (image-spec 1.1) that podman, docker,
// ctr and skopeo load. The same tree and the same Go make the same archive, byte for byte.
//
//	go run ./deploy/container -o baton-image.tar -name docker.io/library/baton:v1
//
// What the image says of itself stands in image.go; a test compares it with Containerfile.
package main
