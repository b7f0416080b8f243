package deploy

import (
	"regexp"
	"strings"
	"testing"
)

// Where the binary is in the image and on hosts, and where its state is.
const (
	binary   = "/usr/bin/baton"
	stateDir = "/run/baton"
)

func parseContainerfile(t *testing.T, path string) {
	text := read(t, path)
	for _, want := range []string{"FROM scratch\n", "COPY --from=build /baton " + binary + "\n", `ENTRYPOINT ["` + binary + `"]`, "ENV PATH=/usr/bin\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	image := regexp.MustCompile(`golang:(\d+\.\d+) AS build`).FindStringSubmatch(text)
	if module == nil || image == nil || module[1] != image[1] {
		t.Errorf("it builds with Go %v, and the module wants %v", image, module)
	}
}
