package recipes

import (
	"context"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func s3Client(base http.RoundTripper, cfg aws.Config) (*s3.Client, error) {
	// begin aws-sdk-go-v2
	transport, err := sluicehttp.New(base, sluicehttp.Config{}) // errors of Amazon are recognized by default
	if err != nil {
		return nil, err
	}
	cfg.HTTPClient = &http.Client{Transport: transport}
	return s3.NewFromConfig(cfg), nil
	// end aws-sdk-go-v2
}

func TestAWS(t *testing.T) {
	slowDown := sluicetest.Reply(503, `<Error><Code>SlowDown</Code></Error>`, "Content-Type: application/xml")
	server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := s3Client(base, aws.Config{
			Region:       "eu-west-1",
			BaseEndpoint: aws.String("https://s3.test"),
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 50, func() error {
			out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
			if err == nil {
				err = out.Body.Close()
			}
			return err
		})
	}, sluicetest.First(20, slowDown), sluicetest.Reply(200, "content"))
}
