package sluicehttp_test

import (
	"testing"

	"github.com/sluice-go/sluice/sluicehttp"
)

const (
	text = "Content-Type: text/plain; charset=utf-8"
	html = "Content-Type: text/html"
)

// unknownWords are what servers document that have no maker in the table, or one of few lines, and
// what looks similar.
var unknownWords = []word{
	// https://docs.apigee.com/api-platform/develop/comparing-quota-spike-arrest-and-concurrent-rate-limit-policies
	{"Apigee, a spike", 500, "", "/", "x", `{"fault":{"faultstring":"Spike arrest violation. Allowed rate : MessageRate{messagesPerPeriod=10, periodInMicroseconds=1000000, maxBurstMessageCount=1.0}","detail":{"errorcode":"policies.ratelimit.SpikeArrestViolation"}}}`, second, 0},
	{"Apigee, a quota", 500, "", "/", "x", `{"fault":{"faultstring":"Rate limit quota violation. Quota limit  exceeded. Identifier : _default","detail":{"errorcode":"policies.ratelimit.QuotaViolation"}}}`, second, 0},
	// https://apim.docs.wso2.com/en/latest/troubleshooting/error-handling/
	{"WSO2", 429, "", "/", "x", `{"fault":{"code":900800,"message":"Message throttled out","description":"You have exceeded your quota","nextAccessTime":"2000-Jan-01 00:00:20+0000 UTC"}}`, 20 * second, 20 * second},
	{"WSO2, 503", 503, "", "/", "x", `{"fault":{"code":900800,"message":"Message throttled out","description":"You have exceeded your quota"}}`, second, 0},
	// https://developer.sellercloud.com/dev-article/rest-api-rate-limiting
	{"Sellercloud", 429, "", "/", "x", `{"Error":"Too many requests.","RateLimitResetTime":"2000-01-01T00:00:20.0000000Z"}`, 20 * second, 20 * second},
	{"a time to reset at", 429, "", "/", "x", `{"message":"slow down","reset_at":946684820}`, 20 * second, 20 * second},
	{"a time that has passed", 429, "", "/", "x", `{"message":"slow down","resetTime":"1999-01-01T00:00:20Z"}`, second, second},
	// https://github.com/rust-lang/crates.io/blob/main/src/rate_limiter.rs
	{"crates.io", 429, "", "/", "x", `{"errors":[{"detail":"You have published too many crates in a short period of time. Please try again after Sat, 01 Jan 2000 00:00:20 GMT or email help@crates.io to have your limit increased."}]}`, 20 * second, 20 * second},
	{"a date in the text", 429, text, "/", "x", "Rate limit exceeded, retry at 2000-01-01T00:00:20Z.", 20 * second, 20 * second},
	{"a time of the day in the text", 429, text, "/", "x", "Rate limit exceeded, retry after 14:30:00 GMT.", second, second},
	{"a number in the text", 429, text, "/", "x", "Rate limit exceeded, try again after 20: x", second, second},
	// https://docs.qualys.com/en/vm/api/scans/get_started/get_started.htm
	{"Qualys", 409, "Content-Type: text/xml|X-RateLimit-ToWait-Sec: 7|X-Concurrency-Limit-Limit: 2|X-Concurrency-Limit-Running: 0", "/", "x", "<CODE>1965</CODE>", 7 * second, 7 * second},
	{"Qualys, at the same time", 409, "Content-Type: text/xml|X-RateLimit-ToWait-Sec: 0|X-Concurrency-Limit-Limit: 2|X-Concurrency-Limit-Running: 2", "/", "x", "<CODE>1960</CODE>", second, second},
	{"Qualys, a conflict", 409, "Content-Type: text/xml|X-RateLimit-ToWait-Sec: 0|X-Concurrency-Limit-Limit: 2|X-Concurrency-Limit-Running: 1", "/", "x", "<CODE>1905</CODE>", 0, 0},
	// https://business-api.tiktok.com/portal/docs
	{"TikTok", 200, "", "/", "", `{"code":40100,"message":"Too many requests. Please retry in some time.","request_id":"1","data":{}}`, second, second},
	{"TikTok, a POST", 200, "", "/", "x", `{"code":40100,"message":"Too many requests. Please retry in some time.","request_id":"1","data":{}}`, second, 0},
	{"TikTok, fine", 200, "", "/", "", `{"code":0,"message":"no longer too many requests","data":{}}`, 0, 0},
	// https://www.last.fm/api/errorcodes
	{"Last.fm", 200, "", "/2.0/", "", `{"error":29,"message":"Rate Limit Exceeded - Your IP has made too many requests in a short period"}`, second, second},
	// https://www.alphavantage.co/support
	{"Alpha Vantage", 200, "", "/query", "", `{"Note":"Thank you for using Alpha Vantage! Our standard API call frequency is 5 calls per minute and 500 calls per day."}`, second, second},
	{"Alpha Vantage, a second", 200, "", "/query", "", `{"Information":"Thank you for using Alpha Vantage! Please consider spreading out your free API requests more sparingly (1 request per second)."}`, second, second},
	{"Alpha Vantage, a day", 200, "", "/query", "", `{"Information":"We have detected your API key and our standard API rate limit is 25 requests per day."}`, 0, 0},
	{"a wait in an envelope", 200, "", "/", "", `{"success":false,"error":"too many requests","retry_after":7}`, 7 * second, 7 * second},
	{"an entry of a log", 200, "", "/", "", `{"level":"error","message":"too many requests","code":429}`, 0, 0},
	{"data in an envelope", 200, "", "/", "", `{"code":1,"message":"too many requests","data":{"a":1}}`, 0, 0},
	{"an envelope that is fine", 200, "", "/", "", `{"success":true,"message":"rate limit exceeded"}`, 0, 0},
	// https://www.api-football.com/documentation-v3
	{"API-Football", 200, "", "/fixtures", "", `{"get":"fixtures","parameters":{"live":"all"},"errors":{"rateLimit":"Too many requests. Your rate limit is 10 requests per minute."},"results":0,"paging":{"current":1,"total":1},"response":[]}`, second, second},
	{"API-Football, in short", 200, "", "/fixtures", "", `{"errors":{"rateLimit":"Too many requests."},"results":0,"response":[]}`, second, second},
	{"API-Football, results beside it", 200, "", "/fixtures", "", `{"get":"fixtures","errors":{"rateLimit":"Too many requests."},"results":1,"response":[1]}`, 0, 0},
	{"API-Football, fine", 200, "", "/fixtures", "", `{"get":"too many requests","errors":[],"results":0,"response":[]}`, 0, 0},
	// https://www.tencentcloud.com/document/product/213/33281
	{"Tencent Cloud", 200, "", "/", "", `{"Response":{"Error":{"Code":"RequestLimitExceeded","Message":"Your current request times equals to 21 in a second, which exceeds the frequency limit 20 for a second."},"RequestId":"1"}}`, second, second},
	{"Tencent Cloud, fine", 200, "", "/", "", `{"Response":{"TotalCount":0,"Name":"too many requests","RequestId":"1"}}`, 0, 0},
	// https://open.taobao.com: error codes
	{"Taobao", 200, "", "/router/rest", "", `{"error_response":{"code":7,"msg":"App Call Limited","sub_code":"accesscontrol.limited-by-api-access-count","sub_msg":"This ban will last for 1 more seconds"}}`, second, second},
	// https://lbs.amap.com/api/webservice/guide/tools/info
	{"Amap", 200, "", "/v3/geocode/geo", "", `{"status":"0","info":"CUQPS_HAS_EXCEEDED_THE_LIMIT","infocode":"10021"}`, second, second},
	{"Amap, fine", 200, "", "/v3/geocode/geo", "", `{"status":"1","info":"OK","infocode":"10000","geocodes":["over qps"]}`, 0, 0},
	// https://open.weibo.com/wiki/Error_code
	{"Weibo", 403, "", "/", "x", `{"request":"/statuses/home_timeline.json","error_code":"10023","error":"User requests out of rate limit!"}`, second, second},
	{"OpenWeatherMap", 200, "", "/", "", `{"cod":429,"message":"Your account is temporary blocked due to exceeding of requests limitation of your subscription type."}`, 0, 0}, // it has a key of its own, and the status 429
	{"in Chinese", 403, "", "/", "x", `{"error":"请求过于频繁，请稍后再试"}`, second, second},
	{"in Chinese, 200", 200, "", "/", "", `{"code":429,"message":"操作太频繁，请稍后再试"}`, second, second},
	// https://www.dropbox.com/developers/documentation/http/documentation
	{"Dropbox", 403, "", "/", "x", `{"error_summary":"too_many_requests/..","error":{".tag":"other"}}`, second, second},
	// https://developers.binance.com/docs/binance-spot-api-docs/rest-api/limits
	{"Binance", 400, "", "/", "x", `{"code":-1003,"msg":"Too much request weight used; current limit is 1200 request weight per 1 MINUTE."}`, second, second},
	// https://learn.microsoft.com/azure/cosmos-db
	{"Cosmos DB", 400, "", "/", "x", `{"code":"RequestRateTooLarge","message":"Request rate is large"}`, second, second},
	{"a polite one", 403, "", "/", "x", `{"message":"You are sending requests too fast, please slow down"}`, second, second},
	{"a word alone", 403, "", "/", "x", `{"message":"throttled"}`, 0, 0}, // a query that is wrong says so, too
	{"a volume", 403, "", "/", "x", `{"message":"Forbidden: API call volume exceeded"}`, second, second},
	{"a limit that was hit", 200, "", "/", "", `{"result":"error","code":"rate_limited","msg":"Rate limit hit"}`, second, second},
	{"without the plural", 200, "", "/", "", `{"code":429000,"msg":"too many request"}`, second, second},
	{"parameters", 400, "", "/", "x", `{"message":"too many request parameters"}`, 0, 0},
	{"the device flow of OAuth", 400, "", "/", "x", `{"error":"slow_down","error_description":"You are polling too fast"}`, 0, 0}, // its caller waits
	// https://support.mashery.com/docs/read/mashery_api/20_reporting/error_codes
	{"Mashery", 403, "Content-Type: text/xml|X-Mashery-Error-Code: ERR_403_DEVELOPER_OVER_QPS", "/", "x", "<h1>Developer Over Qps</h1>", second, second},
	{"Mashery, with a time", 403, "Content-Type: text/xml|X-Mashery-Error-Code: ERR_403_DEVELOPER_OVER_QPS|Retry-After: 3", "/", "x", "<h1>Developer Over Qps</h1>", 3 * second, 3 * second},
	{"Mashery, by the text", 403, "Content-Type: text/xml", "/", "x", "<h1>Account Over Queries Per Second Limit</h1>", second, second},
	{"Mashery, the day", 403, "X-Mashery-Error-Code: ERR_403_DEVELOPER_OVER_RATE", "/", "x", "<h1>Developer Over Rate</h1>", 0, 0},
	// https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
	{"Envoy", 503, text + "|X-Envoy-Overloaded: true", "/", "x", "upstream connect error or disconnect/reset before headers. reset reason: overflow", second, second},
	// https://www.fastly.com/documentation/guides/full-site-delivery/performance/common-503-errors-on-fastly
	{"Fastly", 503, html, "/", "x", "<html><head><title>503 Backend.max_conn reached</title></head>", second, 0},
	// https://api.stackexchange.com/docs/throttle
	{"Stack Exchange", 400, "", "/", "x", `{"error_id":502,"error_message":"too many requests from this IP, more requests available in 55 seconds","error_name":"throttle_violation"}`, 55 * second, 55 * second},
	// https://developers.docusign.com/platform/resource-limits
	{"Docusign", 400, "", "/", "x", `{"errorCode":"BURST_APIINVOCATION_LIMIT_EXCEEDED","message":"The maximum number of burst API invocations has been exceeded. The burst limit is 500."}`, second, second},
	{"Docusign, with a time", 400, "Content-Type: application/json|X-RateLimit-Limit: 3000|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 40", "/", "x", `{"errorCode":"HOURLY_APIINVOCATION_LIMIT_EXCEEDED","message":"The maximum number of hourly API invocations has been exceeded."}`, 40 * second, 40 * second},
	// https://docs.oracle.com/en/cloud/saas/netsuite: Concurrency Governance
	{"NetSuite", 400, "", "/", "x", `{"error":{"code":"SSS_REQUEST_LIMIT_EXCEEDED","message":"Request Limit Exceeded"}}`, second, second},
	// https://developer.salesforce.com/docs: Status Codes and Error Responses
	{"Salesforce, at the same time", 403, "", "/", "x", `[{"message":"ConcurrentRequests (Concurrent API Requests) Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]`, second, second},
	// https://open.larksuite.com/document/server-docs/api-call-guide/frequency-control
	{"Lark", 400, "Content-Type: application/json|X-Ogw-RateLimit-Limit: 50|X-Ogw-RateLimit-Reset: 2", "/", "x", `{"code":99991400,"msg":"request trigger frequency limit"}`, 2 * second, 2 * second},
	// https://musicbrainz.org/doc/MusicBrainz_API/Rate_Limiting
	{"MusicBrainz", 503, "", "/", "x", `{"error":"Your requests are exceeding the allowable rate limit. Please see http://wiki.musicbrainz.org/XMLWebService for more information."}`, second, 0},
	// https://developers.podio.com/index/limits
	{"Podio", 420, "", "/", "x", `{"error":"rate_limit","error_description":"You have hit the rate limit. Please wait 300 seconds before trying again"}`, 300 * second, 300 * second},
	// https://developers.eveonline.com/docs/services/esi/best-practices
	{"EVE", 420, "Content-Type: application/json|X-Esi-Error-Limit-Remain: 0|X-Esi-Error-Limit-Reset: 37", "/", "x", `{"error":"This software has exceeded the error limit for ESI."}`, 37 * second, 37 * second},
	// https://clickhouse.com/docs/operations/server-configuration-parameters/settings#max_concurrent_queries
	{"ClickHouse", 500, text, "/", "x", "Code: 202. DB::Exception: Too many simultaneous queries. Maximum: 100. (TOO_MANY_SIMULTANEOUS_QUERIES)", second, 0},
	// https://www.alibabacloud.com/help/en/ecs/developer-reference/common-client-error-codes
	{"Alibaba Cloud", 400, "", "/", "x", `{"RequestId":"1","HostId":"ecs.aliyuncs.com","Code":"Throttling.User","Message":"Request was denied due to user flow control."}`, second, second},
	// https://mexcdevelop.github.io/apidocs/spot_v3_en/#limits
	{"MEXC", 403, "", "/", "x", `{"code":510,"msg":"Too frequently!"}`, second, second},
	// An answer of Instagram that its users report.
	{"Instagram", 400, "", "/", "x", `{"message":"Please wait a few minutes before you try again.","require_login":true,"status":"fail"}`, second, second},
	// https://bybit-exchange.github.io/docs/v5/rate-limit
	{"Bybit, a ban", 403, text, "/", "x", "403, access too frequent", second, second},
	{"Bybit", 200, "Content-Type: application/json; charset=utf-8|X-Bapi-Limit: 100|X-Bapi-Limit-Status: 0|X-Bapi-Limit-Reset-Timestamp: 946684803000", "/v5/market/tickers", "", `{"retCode":10006,"retMsg":"Too many visits!","result":{}}`, 3 * second, 0},
	{"Bybit, fine", 200, "Content-Type: application/json|X-Bapi-Limit-Status: 1", "/v5/market/tickers", "", `{"retCode":0,"retMsg":"OK"}`, 0, 0},
	{"Bybit, another error", 200, "Content-Type: application/json|X-Bapi-Limit-Status: 1", "/v5/market/tickers", "", `{"retCode":10001,"retMsg":"Too many visits!"}`, 0, 0},
	// https://docs.kraken.com/api/docs/guides/spot-rest-ratelimits
	{"Kraken", 200, "", "/0/public/Ticker?pair=XBTUSD", "", `{"error":["EAPI:Rate limit exceeded"]}`, second, 0},
	{"Kraken, a time", 200, "", "/0/public/Ticker?pair=XBTUSD", "", `{"error":["EService: Throttled: 946684807"]}`, 7 * second, 0},
	{"Kraken, a nonce", 200, "", "/0/private/Balance", "nonce=1", `{"error":["EAPI:Rate limit exceeded"]}`, second, 0},
	{"Kraken, another error", 200, "", "/0/private/Balance", "nonce=1", `{"error":["EAPI:Invalid nonce"]}`, 0, 0},
	// https://experienceleague.adobe.com/en/docs/marketo-developer/marketo/rest/error-codes
	{"Marketo", 200, "", "https://123-abc-456.mktorest.com/rest/v1/leads.json", "", `{"requestId":"1","success":false,"errors":[{"code":"606","message":"Max rate limit '100' exceeded with in '20' secs"}]}`, second, 0},
	{"Marketo, at the same time", 200, "", "https://123-abc-456.mktorest.com/rest/v1/leads.json", "{}", `{"requestId":"1","success":false,"errors":[{"code":"615","message":"Concurrent access limit reached"}]}`, second, second},
	{"Marketo, the day", 200, "", "https://123-abc-456.mktorest.com/rest/v1/leads.json", "", `{"requestId":"1","success":false,"errors":[{"code":"607","message":"Daily quota reached"}]}`, 0, 0},
	// https://dev.vk.com/en/reference/errors
	{"VK", 200, "", "/method/users.get", "", `{"error":{"error_code":6,"error_msg":"Too many requests per second"}}`, second, 0},
	{"VK, the day", 200, "", "/method/users.get", "", `{"error":{"error_code":29,"error_msg":"Rate limit reached"}}`, 0, 0},
	// https://developer.vonage.com/en/messaging/sms/guides/troubleshooting-sms
	{"Vonage", 200, "", "/sms/json", "x", `{"message-count":"1","messages":[{"status":"1","error-text":"Throughput Rate Exceeded - please wait [ 250 ] and retry"}]}`, 250 * ms, 250 * ms},
	{"Vonage, a part", 200, "", "/sms/json", "x", `{"messages":[{"status":"1","error-text":"Throughput Rate Exceeded - please wait [ 250 ] and retry"},{"status":"0"}]}`, 250 * ms, 0},
	{"Vonage, another error", 200, "", "/sms/json", "x", `{"messages":[{"status":"9","error-text":"Partner quota violation, not Throughput"}]}`, 0, 0},
	// https://learn.microsoft.com/exchange/client-developer/exchange-web-services/ews-throttling-in-exchange
	{"Exchange", 500, "Content-Type: text/xml; charset=utf-8", "/EWS/Exchange.asmx", "x", `<s:Fault><faultcode>a:ErrorServerBusy</faultcode><faultstring>The server cannot service this request right now. Try again later.</faultstring><detail><e:ResponseCode>ErrorServerBusy</e:ResponseCode><t:MessageXml><t:Value Name="BackOffMilliseconds">2500</t:Value></t:MessageXml></detail></s:Fault>`, 2500 * ms, 2500 * ms},
	// https://developers.facebook.com/docs/graph-api/overview/rate-limiting
	{"Meta, with a time", 400, `Content-Type: application/json|X-Business-Use-Case-Usage: {"1":[{"type":"ads_insights","call_count":100,"estimated_time_to_regain_access":2}]}`, "/", "x", `{"error":{"message":"(#80000) There have been too many calls from this ad-account.","code":80000}}`, 2 * 60 * second, 2 * 60 * second},
	{"Meta, another error", 400, `Content-Type: application/json|X-Business-Use-Case-Usage: {"1":[{"type":"ads_insights","call_count":9,"estimated_time_to_regain_access":0}]}`, "/", "x", `{"error":{"message":"Unsupported get request.","code":100}}`, 0, 0},
	// https://labs.ig.com/rest-trading-api-guide
	{"IG", 403, "", "/", "x", `{"errorCode":"error.public-api.exceeded-api-key-allowance"}`, second, second},
	// https://join-lemmy.org/api
	{"Lemmy", 400, "", "/", "x", `{"error":"rate_limit_error"}`, second, second},
	// https://docs.bitfinex.com/docs/requirements-and-limitations
	{"Bitfinex", 500, "", "/", "x", `["error",11010,"ratelimit: error"]`, second, 0},
	{"SOAP", 500, "Content-Type: text/xml", "/", "x", "<soap:Fault><faultcode>Client</faultcode><faultstring>RequestLimitExceeded</faultstring></soap:Fault>", second, 0},

	// # When to call again

	// https://bungie-net.github.io/#Exceptions-PlatformErrorCodes
	{"Bungie", 503, "", "/Platform/x", "x", `{"ErrorCode":36,"ThrottleSeconds":20,"ErrorStatus":"ThrottleLimitExceededMinutes","Message":"Throttle limit exceeded","MessageData":{}}`, 20 * second, 0},
	{"a usage limit that resets", 429, "", "/", "x", `{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":20}}`, 20 * second, 20 * second},
	{"when it resets", 429, "", "/", "x", `{"error":{"type":"rate_limit","resetsAt":946684820}}`, 20 * second, 20 * second},
	{"a duration in words", 429, "", "/", "x", `{"retryAfter":"20 seconds"}`, 20 * second, 20 * second},
	{"a time of the day in a field", 429, "", "/", "x", `{"retryAfter":"14:30:00"}`, second, second},
	{"a duration in other words", 429, "", "/", "x", `{"retryAfter":"soon"}`, second, second},
	{"a mark of the byte order", 429, "", "/", "x", "\ufeff" + `{"error":"slow down","retry_after":20}`, 20 * second, 20 * second},
	{"words behind a mark of the byte order", 403, "", "/", "x", "\ufeff" + `{"error":"Too many requests"}`, second, second},
	// https://spec.matrix.org/latest/client-server-api/#rate-limiting
	{"Matrix", 429, "", "/", "x", `{"errcode":"M_LIMIT_EXCEEDED","error":"Too Many Requests","retry_after_ms":2500}`, 2500 * ms, 2500 * ms},
	// https://developer.godaddy.com/getstarted
	{"GoDaddy", 429, "", "/", "x", `{"code":"TOO_MANY_REQUESTS","message":"Too many requests received within interval","retryAfterSec":30}`, 30 * second, 30 * second},
	// https://developer.monday.com/api-reference/docs/rate-limits
	{"monday.com", 429, "", "/v2", "{}", `{"errors":[{"message":"Minute limit rate exceeded","extensions":{"code":"RATE_LIMIT_EXCEEDED","retry_in_seconds":11}}]}`, 11 * second, 11 * second},
	// https://docs.deribit.com: Rate Limits
	{"Deribit", 429, "", "/api/v2/public/test", "", `{"error":{"message":"too_many_requests","code":10028,"data":{"wait":4}}}`, 4 * second, 0},
	// https://www.django-rest-framework.org/api-guide/throttling
	{"Django REST framework", 429, "", "/", "x", `{"detail":"Request was throttled. Expected available in 30 seconds."}`, 30 * second, 30 * second},
	// OpenAI and servers that are compatible with it.
	{"a duration", 429, "", "/", "x", `{"error":{"message":"Rate limit reached for model in organization org-x on tokens per min: Limit 1000. Please try again in 1m20.5s. Visit …"}}`, 80500 * ms, 80500 * ms},
	{"milliseconds", 429, text, "/", "x", "Rate limit reached, please try again in 250ms.", 250 * ms, 250 * ms},
	// https://learn.microsoft.com/azure/api-management/rate-limit-policy
	{"Azure API Management", 429, "", "/", "x", `{"statusCode":429,"message":"Rate limit is exceeded. Try again in 54 seconds."}`, 54 * second, 54 * second},
	{"Azure API Management, volume", 403, "", "/", "x", `{"statusCode":403,"message":"Number of calls exceeded. Quota will be replenished. Retry in 00:02:34"}`, 154 * second, 154 * second},
	{"an instant", 429, "", "/", "x", `{"error":"slow down","retryAt":"2000-01-01T00:00:09Z"}`, 9 * second, 9 * second},
	{"an epoch", 429, "", "/", "x", `{"error":"slow down","retry_at":946684809}`, 9 * second, 9 * second},
	{"an epoch in milliseconds", 429, "", "/", "x", `{"error":"slow down","retry_at":946684809500}`, 9500 * ms, 9500 * ms},
	{"the header says it", 429, "Content-Type: application/json|Retry-After: 3", "/", "x", `{"error":"slow down","retry_after":2000}`, 3 * second, 3 * second},
	{"a limit says it", 429, "Content-Type: application/json|X-RateLimit-Limit: 5|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 4", "/", "x", `{"error":"slow down","retry_after":2000}`, 4 * second, 4 * second},
	{"no number", 429, "", "/", "x", `{"error":"try again in a few seconds","retry_after":null,"wait":true}`, second, second},
	{"an hour in words", 429, text, "/", "x", "Too many requests from this IP, please try again in 1 hour", second, second},

	// # Similar words that are no throttle

	{"an echo of the input", 400, "", "/", "x", `{"errors":[{"field":"name","value":"too many requests","message":"is taken"}]}`, 0, 0},
	{"an echo of the input, 422", 422, "", "/", "x", `{"detail":[{"loc":["body","title"],"msg":"too long","input":"rate limit exceeded"}]}`, 0, 0},
	{"an error about a limit", 422, "", "/", "x", `{"message":"rate_limit must not have exceeded 100 requests per second"}`, 0, 0},
	{"a name that is taken", 409, "", "/", "x", `{"message":"a rule called 'too many requests' exists already"}`, 0, 0},
	{"a field that is unknown", 400, "", "/", "x", `{"error":"unknown field \"rate_limit_exceeded\""}`, 0, 0},
	{"the name of a field", 403, "", "/", "x", `{"error":"forbidden","rate_limit_exceeded":false,"too_many_requests":0}`, 0, 0},
	{"a plan", 403, "", "/", "x", `{"error":"The number of requests of your plan is reached, upgrade it"}`, 0, 0},
	{"Salesforce, the day", 403, "", "/", "x", `[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT"}]`, 0, 0},
	{"a page about limits", 403, html, "/", "x", "<title>Forbidden</title><p>See our <a href=/rate-limits>rate limits</a>, or sign in.</p>", 0, 0},
	{"a page of a site", 200, html, "/", "", "<title>Rate limit exceeded</title> too many requests", 0, 0},
	{"JSON of a site", 200, "", "/articles/1", "", `{"id":1,"author":"x","error":"rate limit exceeded"}`, 0, 0},
	{"a conflict", 409, "", "/", "x", `{"message":"version conflict","retry_after":5}`, 0, 0},
	{"a maximum that is no rate", 400, "", "/", "x", `{"errors":[{"message":"'zone' is not a valid value for kind because exceeded maximum number of zone rulesets for phase http_ratelimit"}]}`, 0, 0},
	{"a batch that is too large", 400, "", "/", "x", `{"error":"The number of requests in the batch exceeded the maximum of 100"}`, 0, 0},
	{"too many of another thing", 400, "", "/", "x", `{"error":"too many fields in requests"}`, 0, 0},
	{"a window of HTTP/2", 400, text, "/", "x", "http2: flow control error, please wait", 0, 0},
	{"a plan to pay for", 402, "", "/", "x", `{"error":"API request limit exceeded, upgrade to continue"}`, 0, 0},
	{"a store of limits", 500, "", "/", "x", `{"error":"rate limit store could not be reached"}`, another, 0},
	{"Contentful, no access", 403, "Content-Type: application/json|X-Contentful-RateLimit-Reset: 0", "/", "x", `{"sys":{"type":"Error","id":"AccessDenied"}}`, 0, 0},
	{"Meta, an error beside a limit", 400, `Content-Type: application/json|X-Business-Use-Case-Usage: {"1":[{"type":"ads_insights","call_count":100,"estimated_time_to_regain_access":19}]}`, "/", "x", `{"error":{"message":"Invalid parameter","code":100}}`, 0, 0},
	{"a time of the day", 429, "", "/", "x", `{"error":"Too many requests, retry after 14:30:00 GMT"}`, second, second},
	{"a number without a unit", 429, "", "/", "x", `{"error":"slow down","retryAfter":60000}`, second, second},
	{"several limits", 429, "", "/", "x", `{"error":"slow down","limits":{"minute":{"remaining":0,"reset_in":12},"day":{"remaining":900,"reset_in":43000}}}`, 12 * second, 12 * second},
	{"a limit of both kinds", 403, "", "/", "x", `{"error":"Rate limit exceeded: 5 calls per minute and 500 per day"}`, second, second},
}

func TestWords_HaveAStem(t *testing.T) {
	if unseen := sluicehttp.UnseenWords(); len(unseen) > 0 {
		t.Errorf("%q are never looked for", unseen)
	}
}
