package testkube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// auditPolicy has the API server note what one user asks for.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, users: [%q]}
  - {level: None}
`

// Request is something that a user may ask for.
type Request struct{ Verb, Group, Resource string }

func (r Request) String() string { return r.Verb + " " + r.Resource + "." + r.Group }

// Requests lists what the service account kube-system/baton has asked for, each once,
// and what of it was forbidden.
func (c *Cluster) Requests() (asked, forbidden []Request) {
	c.t.Helper()
	log, err := os.ReadFile(c.path(auditFile))
	if err != nil {
		c.t.Fatalf("read the audit log: %v", err)
	}
	for d := json.NewDecoder(bytes.NewReader(log)); ; {
		var e struct {
			Verb      string
			ObjectRef struct{ APIGroup, Resource string }
			Status    struct{ Code int } `json:"responseStatus"`
		}
		if err := d.Decode(&e); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return asked, forbidden
		} else if err != nil {
			c.t.Fatalf("read the audit log: %v", fmt.Errorf("%w in %q", err, log))
		}
		r := Request{Verb: e.Verb, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}
		if r.Resource == "" {
			continue // the version of the server, and the like
		}
		if !slices.Contains(asked, r) {
			asked = append(asked, r)
		}
		if e.Status.Code == 403 && !slices.Contains(forbidden, r) {
			forbidden = append(forbidden, r)
		}
	}
}
