package sdktest

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

func awsConfig(client *http.Client, endpoint string) aws.Config {
	return aws.Config{
		Region:       "eu-west-1",
		BaseEndpoint: aws.String(endpoint),
		HTTPClient:   client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
		}),
	}
}

const (
	slowDown  = `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
	throttled = `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"Rate exceeded"}`
)

var atHundred = sluicetest.Limit{Count: 100, Per: time.Second, Burst: 10}

// s3Job is 1,000 objects that are read from a bucket that takes 100 per second.
func s3Job(options ...func(*s3.Options)) job {
	return job{
		calls: 1000, workers: 64,
		server: func() []sluicetest.Layer {
			return []sluicetest.Layer{latency(), limited(atHundred, 503, "application/xml", slowDown), sluicetest.Reply(200, "content")}
		},
		sdk: func(t *testing.T, client *http.Client) call {
			c := s3.NewFromConfig(awsConfig(client, "https://s3.test"), append(options, func(o *s3.Options) { o.UsePathStyle = true })...)
			return func(ctx context.Context, n int) error {
				out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
				if err != nil {
					return err
				}
				defer out.Body.Close()
				_, err = io.Copy(io.Discard, out.Body)
				return err
			}
		},
	}
}

// dynamoJob is 1,000 items that are put into a table that takes 100 per second.
func dynamoJob(options ...func(*dynamodb.Options)) job {
	return job{
		calls: 1000, workers: 64,
		server: func() []sluicetest.Layer {
			const kind = "application/x-amz-json-1.0"
			return []sluicetest.Layer{latency(), limited(atHundred, 400, kind, throttled), sluicetest.Reply(200, "{}", "Content-Type: "+kind)}
		},
		sdk: func(t *testing.T, client *http.Client) call {
			c := dynamodb.NewFromConfig(awsConfig(client, "https://dynamodb.test"), options...)
			return func(ctx context.Context, n int) error {
				_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("t"), Item: map[string]types.AttributeValue{
					"id": &types.AttributeValueMemberS{Value: "x"},
				}})
				return err
			}
		},
	}
}

// The SDK as it is, and nothing configured: the SDK repeats what fails, and signs it
// anew; the transport repeats throttles and slows down.
func TestAWSAsItIs(t *testing.T) {
	for name, j := range map[string]job{"S3": s3Job(), "DynamoDB": dynamoJob()} {
		t.Run(name, func(t *testing.T) {
			j.through = new(sluicehttp.Config)
			for _, j.http1 = range []bool{false, true} {
				through := j.run(t, name+" through the transport")
				j.wantAll(t, through)
				notWorse(t, through, j.alone().run(t, name+" alone"))
			}
		})
	}
}

// With the rate of the server nothing is refused.
func TestAWSAtItsRate(t *testing.T) {
	for name, j := range map[string]job{"S3": s3Job(), "DynamoDB": dynamoJob()} {
		j.through = &sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}}
		y := j.run(t, name+" at 100/s")
		j.wantAll(t, y)
		if y.refused > 0 || y.took > 10100*time.Millisecond {
			t.Errorf("%s: %v", name, y)
		}
	}
}

// One item of twenty fails by accident. The SDK knows that its calls may be repeated,
// also those by POST. So does a transport if the requests are marked; otherwise it loses
// them.
func TestAWSAccidents(t *testing.T) {
	accident := sluicetest.Every(20, sluicetest.Reply(500, `{"__type":"InternalServerError"}`, "Content-Type: application/x-amz-json-1.0"))
	with := func(options ...func(*dynamodb.Options)) job {
		j := dynamoJob(options...)
		j.calls = 300
		inner := j.server
		j.server = func() []sluicetest.Layer { return append([]sluicetest.Layer{accident}, inner()...) }
		j.through = &sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}}
		return j
	}
	noRetries := func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }
	j := with()
	// The SDK tries three times: of 300 calls it loses one in 27 runs, and never a few.
	if y := j.run(t, "DynamoDB, 5 % 500s, as it is"); y.ok < j.calls-4 {
		t.Errorf("%d of %d calls succeed", y.ok, j.calls)
	}
	j = with(noRetries)
	j.idempotent = true
	j.wantAll(t, j.run(t, "DynamoDB, 5 % 500s, NopRetryer, idempotent"))
	j = with(noRetries)
	if y := j.run(t, "DynamoDB, 5 % 500s, NopRetryer"); y.ok == j.calls {
		t.Error("the documentation says that these calls are lost")
	}
}

// Config.Inspect of AWS knows every code that the SDK counts as a throttle.
func TestAWSKnowsTheCodesOfTheSDK(t *testing.T) {
	if len(retry.DefaultThrottleErrorCodes) == 0 {
		t.Fatal("no codes")
	}
	for code := range retry.DefaultThrottleErrorCodes {
		var said ratelimit.Info
		resp := &http.Response{StatusCode: 400, Header: make(http.Header)}
		presets.AWS().Inspect(resp, func() []byte { return []byte(`{"__type":"com.example#` + code + `"}`) }, &said)
		if !said.Throttled {
			t.Errorf("%s is no throttle", code)
		}
	}
}
