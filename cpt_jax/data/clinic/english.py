"""Sentences of the invented clinic in English: what each section of a note says.

Read by `cpt_jax.data.synthetic`. `## name: heading | heading` opens a section; `>` starts a
sentence, `?` one that may be left out, `|` another wording of the sentence above it. `{slot}` is
filled from the case (`{dx.un}`: the disease with its indefinite article), `[a|b]` is one of the
alternatives, `<2-9>` a number. An indented line continues the line above.
"""

SECTIONS = r"""
## letterhead:
> {hospital}, {unit}, {date}. [Patient|Re]: {M}, born {birth}, hospital number {ipp}.
| {hospital} - {unit} - {date}\n{M}, aged {age}, DOB {birth} (MRN {ipp}).
| {M}, {age} years old, MRN {ipp}, episode starting {date}, {unit}, {hospital}.
## reason: Reason for admission | Presenting complaint | Admission
> {M}, aged {age}, was [admitted|referred|brought in] with {dx.un}.
| This {age}-year-old {man} was referred by {gp} for management of {dx.un}.
| {dx.un} [led to|was the reason for] the admission of {M}, aged {age}.
| A {age}-year-old {man} [admitted as an emergency|admitted to the ward] with {dx.un}.
? {he} had a {durhyphen} history of {sx0}.
| The presentation was with {sx} over {dur}.
## history: Past medical history | Background
> [Known|Notable] for {como}.
| {he} is followed for {como}.
| Medical history includes {como}.
? Surgical history: {oldop.bare} in {opyear}.
| {oldop.bare} <3-40> years ago.
? Last checked {delay} ago: {normlab}[, unremarkable|].
? No [known|personal] history of {nodx.bare}.
## home: Regular medication | Drug history
> At home {he} takes {homerx}.
| {homerx}.
? Adherence is [good|fair|erratic][, according to the family|, according to the pharmacist|].
| No over-the-counter drugs [were found|reported][ apart from herbal teas|].
## habits: Social history | Social and family history
> {job}, {living}.
| {he} {living}. Occupation: {job}.
? [Ex-smoker|Current smoker] of about <5-48> pack-years.
| Never smoked, alcohol intake [occasional|moderate|nil].
| Stopped smoking <2-30> years ago after <5-40> pack-years.
? There is a family history of {family}.
| Family history: {family}.
## allergy: Allergies
> {allergy}.
## story: History of presenting complaint | History
> It began {dur} ago with {sx}.
| {he} [reports|describes|gives a history of] {sx} for {dur}.
| {he} saw {gp} because of {sx}, [slowly|rapidly] worsening over {dur}.
? The {sy.bare} [worsened|progressed] [despite|on] {drugname.bare}.
| The {sy.bare} [{sy.a} become disabling|{sy.est} now a daily problem].
? {he} [denies|did not report] {nosx}.
| There was neither {nox.bare} nor {nox2.bare}.
| No {nosx}.
? {gp} then [asked for a specialist opinion|sent {him} to A&E|arranged admission].
| At a first appointment on {before}, {drugname.bare} had been prescribed.
## exam: Examination | On examination | Clinical findings
> {vitals}.
| On arrival: {vitals}.
| Observations: {vitals}.
> There was {signs}.
| Examination [showed|revealed] {signs}.
? {exam_s}
? No {nosx}.
| {he} had no {nosx}.
? The rest of the examination was [unremarkable|normal].
## labs: Blood tests | Laboratory results | Investigations
> {labs}.
| Results [showed|included]: {labs}.
| On admission: {labs}.
? [By contrast|Otherwise], {normlab}.
| Other tests were [normal|unremarkable], including {normlab}.
## imaging: Imaging and other tests | Further investigations | Procedures
> {proc.le} on {date} [showed|revealed] {finding.un}.
| {proc.bare} [on {date}|performed today]: {finding.bare}.
? {morefound}
? There was no evidence of {nodx.bare}.
| {nodx.bare} was [excluded|ruled out].
## course: Hospital course | Progress on the ward | Management
> {he} [was treated with|received] {drug}[, well tolerated|, with good tolerance|].
| Treatment with {drug} was [started|commenced] on [admission|the first day].
? {opsentence}
? {course_s}
? Recovery was [good|slow but steady], and {sy.bare} settled within <2-8> days.
| The {sy.bare} [gradually|quickly] [improved|resolved] on {drugname.bare}.
? Biologically, {labtrend}.
? {change}.
? The stay was [complicated|marked] by {complication.un}, [which resolved quickly|treated without
  sequelae].
| There was no [complication|infective or thrombotic complication].
## outcome: Conclusion | Summary | Impression
> {dx.bare} in a {age}-year-old {man}, improving on {drugname.bare}.
| {M}, aged {age}, was therefore treated for {dx.un}.
| This was {dx.un}, [confirmed|documented] by {proc.bare}, in {M}.
? On discharge {he} no longer had {gone}.
? Discharged home on {dateout}[, accompanied|, with district nurse visits|, by ambulance].
## outrx: Discharge medication | Medication on discharge
> {rxlist}
## followup: Follow-up | Follow-up and monitoring | Plan
> Clinic with {dr} in {delay}[, with {proc.un}|].
| {M} will be seen by {dr} in {delay}, with a repeat {proc.bare}.
? {plan_s}
? Repeat {labname.bare} in {delay}.
? In case of recurrent {sy.bare}, [call the ward|attend A&E].
? Reminder: {allergy}.
## sign:
> {drname}, [consultant|specialist registrar|ward doctor].
| [Approved|Dictated|Checked] by {dr}.
## greeting:
> {hospital}, {date}. Dear [colleague|doctor], thank you for referring {M}, aged {age}.
| {date}. Dear [colleague|doctor], I reviewed {M}, born {birth}, in clinic today.
## letter:
> {he} attends with {dx.un}, evolving over {dur}.
| {he} is followed for {dx.un}, [diagnosed|found] on {proc.bare}.
? {his} main complaint is now {sy.bare}.
| Current symptoms are {sx}.
## advice: Opinion | Conclusion
> [I suggest|I would advise] continuing {drug}.
| For this {ref.bare}, treatment is {rx}.
? {change}.
? {plan_s}
? I will see {M} again in {delay} with {proc.un} and a repeat {labname.bare}.
| A repeat {labname.bare} is planned in {delay}.
## closing:
> [Yours sincerely|Kind regards|With best wishes], {drname}.
| With many thanks, {drname}, {unit}.
## filmhead:
> {hospital}, {film.bare}, {date}. {M}, aged {age}, hospital number {ipp}.
| Report: {film.bare}, {date}. Patient: {M}, born {birth}.
## indication: Indication | Clinical information
> Work-up of {ref.bare}; {sx1} for {dur}.
| Suspected {ref.bare}, {sx1} for {dur}. [Any complication?|]
## technique: Technique
> [Standard|Multiplanar] acquisition [with|without] contrast.
| Compared with the study of {before}. [Diagnostic quality is good.|Some motion artefact.]
## film: Findings | Report
> There is {filmfinding.un}.
| {filmfinding.un}, [unchanged since|more marked than on|not seen on] the study of {before}.
? No evidence of {nodx.bare}.
| There is no sign of {nodx.bare}.
? [No suspicious bone lesion.|No effusion.|Midline structures are central.]
? [The other structures imaged are unremarkable.|No enlarged nodes.]
## filmconclusion: Conclusion | Impression
> Appearances in keeping with {dx.un}.
| {filmfinding.un}, suggesting {ref.bare}.
? Correlate with [the clinical picture|blood results]; repeat in {delay}.
## ophead: Operation note
> {op.bare}, {date}. Operator: {dr}. {M}, aged {age}. Indication: {dx.bare}.
| {date}: {op.bare} in {M}, aged {age}, for {dx.un}. Operator: {dr}.
## anaesthesia: Anaesthesia and positioning
> [General|Regional] anaesthesia, [supine|lateral decubitus].
| Under [general anaesthesia|local anaesthesia with sedation], with antibiotic prophylaxis.
? Checklist: {allergy}.
## steps: Procedure | Steps
> {steps}
? Careful haemostasis, blood loss <20-350/10> mL. Dry dressing.
| Duration <25-180/5> minutes, swab count correct.
## aftercare: Postoperative instructions
> {drug} [for <2-10> days|postoperatively]. Repeat {labname.bare} the next day.
| Watch for {sy.bare}, restart {drugname.bare} on day <1-5>. Clinic with {dr} in {delay}.
? Uneventful recovery expected; discharge planned for {dateout}.
? In case of {complication.bare}, call [the on-call registrar|theatre].
## nursing: [Nursing notes|Nursing handover|Nursing entry], {date}
> <6-23>:<10-55/5> {M} [calm|tired|cheerful|rather anxious]. {vitals2}.
| <6-23>:<10-55/5> round. {M} [asleep|awake|sitting out]. {vitals2}.
> Dressing [changed|clean and dry], [some help|full assistance|independent] with washing.
| Urine output <400-1900/50> mL, [bowels open today|bowels not open for <2-4> days].
| Ate [half|most|all] of the meal, fluids [encouraged|adequate].
| Family visited, [low in mood|mood fair], worried about the {ref.bare}.
? Pain score <0-8>/10, {drugname.bare} given at <7-21>:00[ with effect|, little effect|].
| {he} does not complain of {nosx1}. {drug} given today.
| Inform {dr} [if {sy.bare}|if temperature above 38.5 °C]. Monitor {labname.bare}.
## scripthead: Prescription
> {drname}, {hospital}, {date}. {M}, aged {age}.
| {unit}, {hospital}. {date}. For {M}, born {birth}.
## script:
> {rxlist}
## scriptadvice: Remarks
> Treatment of {ref.bare}, repeat <1-6> times.
| Supply for {delay}. Indication: {dx.bare}.
? [Do not stop without medical advice.|To be taken with food.|Blood tests on day <7-30>.]
? {allergy}.
## labhead: Laboratory report
> {M}, born {birth}. Sample of {date} at <6-18>:<10-55/5>, {unit}.
| Laboratory, {hospital}. MRN {ipp}, {M}, aged {age}. Collected {date}.
## labtable: Results
> {labtable}
## labcomment: Comment
> Results in keeping with {dx.un}. [Repeat within <24-72/24> hours.|]
| Expected in {ref.bare}. [{dr} informed by telephone.|To be followed.]
? Possible interference from {drugname.bare}.
## dayhead:
> {M}, aged {age}, [in hospital with|treated for] {dx.un}.
| {unit}: {M}, {age} years, {dx.bare}.
## day: Day {day} ({date})
> {M} [feels better|is mobilising|stays in bed|slept well]. {vitals2}. No {nosx1}.
| The {sy.bare} {sy.est} [less marked|settling|unchanged]. {vitals2}.
| {vitals2}. On examination: {sign.bare}. No {nosx1}.
? {labtrend}.
| {change}.
| {drug} continued; {ref.bare} improving.
| {course_s}
## visit: [Clinic visit|Follow-up visit|Outpatient review], {date}
> {M} was reviewed for {ref.bare}[, {delay} after discharge|, as planned|].
| {he} came back for follow-up of {ref.bare}.
? Since the last visit {he} has had {sy.un} but no {nox.bare}.
| {he} no longer has {gone}. Tolerance of {drugname.bare} is [good|poor|excellent].
> {vitals2}. Examination showed {sign.un}.
| {exam_s} {vitals2}.
> {labtrend}.
| Today's blood tests: {labs}.
? {proc.le} [showed|revealed] {finding.un}, [improving|stable].
? {nodx.bare} was looked for and excluded.
> {change}.
| Treatment consists of {rx}.
? {plan_s}
? Next visit in {delay} with {dr}.
## results: Blood tests of {date}
> {labtable}
? {labtrend}.
## study: [Test|Investigation] of {date}
> {proc.bare}: {finding.bare}. Indication: follow-up of {ref.bare}.
| {proc.bare}: {finding.bare}, [stable|improving]. No evidence of {nodx.bare}.
## synthesis: Summary of the record
> {dx.bare}, treated since {datein} by {gp} and then {dr}, in a {man} with a history of {como}.
? {allergy}.
? Residual symptom: {sy.bare}. Repeat {labname.bare} awaited.
## more:
> {proc.le} [completed the work-up and showed|also showed] {finding.un}.
| {proc.bare}: {finding.bare}.
## opsentence:
> {op.bare} was [performed|carried out] on {date}[ by {dr}|], uneventfully.
## labtrend:
> {labname.bare} [went|moved] from {old} to {new}
| {labname.bare} {new}, [previously {old}|against {old} at the last check]
## raise:
> {drugname.bare} was increased from {dose} to {dose2}
| the dose of {drugname.bare} was raised from {dose} to {dose2}
## lower:
> {drugname.bare} was reduced from {dose} to {dose2}
| the dose of {drugname.bare} was lowered from {dose} to {dose2}
## keep:
> {drugname.bare} was continued at the same dose
| no change to {drugname.bare}
## comorbidity:
> {c.bare} since {year}[, treated with {cdrug}|, on {cdrug}|]
| {c.bare} known since {year}
## vitals:
> BP {sys}/{dia} mmHg, HR {hr}/min, SpO2 {spo2} % on air, temperature {temp} °C
| temperature {temp} °C, blood pressure {sys}/{dia} mmHg, pulse {hr}/min, saturation {spo2} %
## vitals2:
> BP {sys}/{dia}, HR {hr}, T {temp} °C
| obs: {temp} °C, {sys}/{dia} mmHg, {hr}/min
| T {temp} °C, SpO2 {spo2} %, pulse {hr}
## allergy_kind:
> no known drug allergy
| no allergies recorded
| allergic to [penicillin|sulphonamides|iodinated contrast|codeine] ([urticaria|rash|shock in
  <1985-2010>])
| intolerant of [tramadol|NSAIDs|latex] ([nausea|itching|angioedema])
## job:
> [retired|part-time] teacher
| [council|bank|office] clerk
| cleaner
| [retired nurse|care assistant]
| retired [joiner|baker|decorator]
| accountant
| farmer
## living:
> lives alone in a [flat|bungalow]
| lives with [{his} spouse|{his} children|one of {his} sons]
| lives in [sheltered housing|a nursing home|the country with {his} family]
"""

LASTNAMES = (
    "Hargreaves Whitfield Mercer Osborne Dalton Pemberton Carver Ashworth Lockwood Ellison Thorne"
    " Bradshaw Fielding Holloway Kendall Marlow Norris Oakley Pickering Rowland Sutcliffe Tanner"
    " Upton Varley Wainwright Yardley Beckett Crowther Draper Everett Farrow Goddard Hollis Ingram"
    " Jessop Kirkby Lister Moffat Nesbitt Prescott"
)
HOSPITALS = (
    "St Bride's Hospital|Northfield General Hospital|Ashbourne Infirmary|Riverside Clinic"
    "|The Harcourt Institute|Meadowbank District Hospital|Queen's Park Hospital|Thornhill Hospital"
)
MONTHS = "January February March April May June July August September October November December"
NUMBERS = "two three four five six seven eight nine ten eleven twelve"
UNITS = {"day": ("day", "days"), "week": ("week", "weeks"), "month": ("month", "months")}
