package presets

import (
	"net/http"
	"strings"

	"github.com/sluice-go/sluice/sluicehttp"
)

// geminiModels are the methods that only compute, so that a request may be sent twice.
var geminiModels = []string{
	":generateContent", ":streamGenerateContent", ":countTokens", ":computeTokens", ":embedContent",
	":batchEmbedContents", ":predict", ":rawPredict", ":streamRawPredict",
}

// Gemini returns a Config for the Gemini API and for the models of Vertex AI. Each model has a
// gate: its key is the host and the name of the model. Requests to a model may be sent twice. A 429
// says when to retry.
//
// LLM tokens are not estimated.
func Gemini() sluicehttp.Config {
	return sluicehttp.Config{
		Key:        hostAndGemini,
		Idempotent: func(req *http.Request, _ []byte) bool { return toModel(req, geminiModels...) },
	}
}

// hostAndGemini is a Config.Key:
//
//	/v1beta/models/gemini-3-flash:generateContent
//	/v1/projects/p/locations/l/publishers/google/models/gemini-3-flash:generateContent
//	/v1/projects/p/locations/l/endpoints/1234567890:generateContent
func hostAndGemini(req *http.Request) string {
	for _, parent := range []string{"/models/", "/endpoints/"} {
		if _, model, found := strings.Cut(req.URL.Path, parent); found {
			model, _, _ = strings.Cut(model, ":")
			if model, _, _ = strings.Cut(model, "/"); model != "" {
				return hostOf(req) + " " + model
			}
		}
	}
	return hostOf(req)
}
