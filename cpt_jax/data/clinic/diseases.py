"""Diseases of the invented clinic, with what each brings along; read by `cpt_jax.data.synthetic`.

A disease links symptoms, drugs, laboratory tests (+ high, - low), signs and findings by procedure:
the regularities a language model can learn beyond grammar. Terms are `French / English` as in
`cpt_jax.data.clinic.lexicon`. `[a|b]` is drawn once per patient: the n-th bracket of the name, the
signs and the findings takes the same draw in both languages (`[2:..]` names n where the word order
differs), so that a left-sided disease has left-sided findings; `<2-9>` is a number drawn once per
patient, `<5-15/5>` one in steps of 5. An indented line continues the line above.
"""

# @key specialty [operation] [sex] = name = short name, used when the disease is named again
# > symptoms | drugs | laboratory tests     + signs     * procedure: finding
DISEASES = """
@htn general = f hypertension artérielle [mal contrôlée|sévère] / [poorly controlled|severe]
  hypertension = f hypertension artérielle / hypertension
> headache vertigo visual | amlodipine perindopril indapamide | k- creat+ ldl+
+ m souffle [aortique|abdominal] / a soft [aortic|abdominal] murmur ; f surcharge pondérale /
  truncal obesity
* fundus: f rétinopathie hypertensive de stade [1|2] / grade [1|2] hypertensive retinopathy
* abpm: f moyenne de 24 heures à <148-172>/<88-104> mmHg / a 24-hour mean of <148-172>/<88-104> mmHg
@t2dm general = m diabète de type 2 [déséquilibré|mal équilibré] / [poorly controlled|decompensated]
  type 2 diabetes = m diabète de type 2 / type 2 diabetes
> thirst weight fatigue visual | metformin gliclazide glargine | hba1c+ glucose+ ldl+ creat+
+ f hypoesthésie en chaussettes / stocking sensory loss ; f abolition des réflexes achilléens /
  absent ankle jerks
* fundus: f rétinopathie non proliférante [minime|modérée] / [mild|moderate] non-proliferative
  retinopathy
* usabdo: f stéatose hépatique diffuse / diffuse hepatic steatosis
@hypot general = f hypothyroïdie [auto-immune|primaire] / [autoimmune|primary] hypothyroidism = f
  hypothyroïdie / hypothyroidism
> fatigue cold constipation mood | levothyroxine | tsh+ ldl+ na-
+ f peau sèche et froide / cool dry skin ; m goitre [diffus|micronodulaire] / a [diffuse|nodular]
  goitre
* usneck: f thyroïde hypoéchogène et hétérogène / a hypoechoic heterogeneous thyroid
@gout general = f crise de goutte du pied [droit|gauche] / acute gout of the [right|left] foot = f
  goutte / gout
> toe fever stiffness | colchicine allopurinol paracetamol | uric+ crp+ creat+
+ f articulation métatarsophalangienne rouge et chaude à [droite|gauche] / a hot swollen
  [right|left] metatarsophalangeal joint
* usfoot: mp cristaux d'urate monosodique / monosodium urate crystals
@ida general = f anémie ferriprive par saignement digestif / iron-deficiency anaemia from gut blood
  loss = f anémie ferriprive / iron-deficiency anaemia
> fatigue pallor palpitations rectal | iron folic omeprazole | hb- ferritin- mcv- plt+
+ f pâleur conjonctivale / conjunctival pallor ; m souffle systolique fonctionnel / a flow murmur
* gastroscopy: f gastrite érosive [antrale|fundique] / erosive gastritis of the [antrum|fundus]
* colonoscopy: fp angiodysplasies du cæcum / caecal angiodysplasia
@depr general = m épisode dépressif [modéré|sévère] / a [moderate|severe] depressive episode = m
  syndrome dépressif / depression
> mood insomnia fatigue anorexia | sertraline | tsh+ b12-
+ m ralentissement psychomoteur / psychomotor slowing ; f labilité émotionnelle / a tearful affect
* psych: f anhédonie sans idée suicidaire / anhedonia without suicidal ideation
@knee general = f gonarthrose [droite|gauche] évoluée / advanced osteoarthritis of the [right|left]
  knee = f gonarthrose / knee osteoarthritis
> kneepain stiffness falls | paracetamol ibuprofen tramadol | uric+ hb-
+ m épanchement articulaire du genou [droit|gauche] / a small [right|left] knee effusion ; m flessum
  de <5-15/5>° / a fixed flexion of <5-15/5>°
* kneexray: m pincement fémorotibial [droit|gauche] / [right|left] medial joint space narrowing ; mp
  ostéophytes marginaux / marginal osteophytes
@sciat general = f lombosciatique [droite|gauche] par hernie discale [L4-L5|L5-S1] / [right|left]
  sciatica from [an L4-L5|an L5-S1] disc prolapse = f lombosciatique / sciatica
> back sciatica paraesthesia | paracetamol tramadol ibuprofen | glucose+
+ m signe de Lasègue à <30-60/5>° à [droite|gauche] / straight leg raise limited to <30-60/5>° on
  the [right|left]
* lspine: f hernie discale [2:L4-L5|L5-S1] postérolatérale [1:droite|gauche] / a [right|left]
  posterolateral disc prolapse at [L4-L5|L5-S1]
@chole general cholecystectomy = f cholécystite aiguë lithiasique / acute calculous cholecystitis =
  f cholécystite / cholecystitis
> biliary fever nausea vomiting | metronidazole phloroglucinol paracetamol | crp+ wbc+ ggt+ bili+
+ m signe de Murphy / a positive Murphy's sign ; f défense de l'hypochondre droit / right upper
  quadrant guarding
* usabdo: f vésicule à paroi épaissie à <5-9> mm / a gallbladder wall thickened to <5-9> mm ; m
  calcul [infundibulaire|vésiculaire] de <8-24> mm / a <8-24> mm stone in the gallbladder
  [neck|fundus]
@append general appendicectomy = f appendicite aiguë [non compliquée|perforée] / acute
  [uncomplicated|perforated] appendicitis = f appendicite / appendicitis
> iliac fever anorexia vomiting | cefazolin metronidazole paracetamol | crp+ wbc+ neut+
+ f défense en fosse iliaque droite / guarding in the right iliac fossa ; f douleur provoquée au
  point de McBurney / tenderness at McBurney's point
* ctabdo: m appendice distendu à <9-15> mm / an appendix distended to <9-15> mm ; f infiltration de
  la graisse périappendiculaire / periappendiceal fat stranding
@hernia general hernioplasty = f *hernie inguinale [droite|gauche] symptomatique / a symptomatic
  [right|left] inguinal hernia = f *hernie inguinale / inguinal hernia
> groin nausea constipation | cefazolin paracetamol ibuprofen | k- hb-
+ f tuméfaction inguinale [droite|gauche] réductible / a reducible [right|left] groin swelling
* usabdo: m collet herniaire [droit|gauche] de <14-38> mm / a [right|left] hernial neck of <14-38>
  mm
@hf cardiology = f décompensation cardiaque [gauche|globale] sur cardiopathie [ischémique|dilatée] /
  [left-sided|biventricular] decompensation of [ischaemic|dilated] cardiomyopathy = f insuffisance
  cardiaque / heart failure
> dyspnoea orthopnoea oedema fatigue | furosemide bisoprolol ramipril spironolactone dapagliflozin |
  bnp+ creat+ na-
+ mp crépitants des deux bases / bibasal crackles ; f turgescence jugulaire / a raised jugular
  venous pressure ; m galop protodiastolique / a third heart sound
* echo: f dysfonction ventriculaire gauche avec FEVG à <20-38> % / left ventricular dysfunction with
  an ejection fraction of <20-38> %
* cxr: f redistribution vasculaire vers les sommets / upper lobe venous diversion ; f cardiomégalie
  / cardiomegaly
@mi cardiology angioplasty = m infarctus du myocarde [antérieur|inférieur] avec sus-décalage du
  segment ST / [anterior|inferior] ST-elevation myocardial infarction = m infarctus du myocarde /
  myocardial infarction
> chest clammy nausea syncope | aspirin ticagrelor atorvastatin bisoprolol ramipril | trop+ ldl+
  bnp+
+ m assourdissement des bruits du cœur / muffled heart sounds ; fp marbrures des genoux / mottled
  knees
* ecg: m sus-décalage du segment ST en [antérieur|inférieur] / ST elevation in the
  [anterior|inferior] leads
* angio: f occlusion de l'artère [interventriculaire antérieure|coronaire droite] / occlusion of the
  [left anterior descending|right coronary] artery
* echo: f hypokinésie [antéroseptale|inférobasale] / [anteroseptal|inferobasal] hypokinesia
@af cardiology = f fibrillation atriale [paroxystique|persistante] / [paroxysmal|persistent] atrial
  fibrillation = f fibrillation atriale / atrial fibrillation
> palpitations dyspnoea syncope fatigue | apixaban bisoprolol amiodarone diltiazem | tsh+ bnp+ k-
+ m rythme irrégulier à <104-148>/min / an irregular pulse of <104-148>/min
* ecg: f absence d'ondes P / absent P waves ; fp pauses inférieures à <2-3> secondes / pauses
  shorter than <2-3> seconds
* holter: fp salves de fibrillation de <2-18> heures / runs of fibrillation lasting <2-18> hours
* echo: f oreillette gauche dilatée à <42-58> mL/m² / a left atrium dilated to <42-58> mL/m²
@astenosis cardiology valve = m rétrécissement aortique serré [calcifié|bicuspide] / severe
  [calcific|bicuspid] aortic stenosis = m rétrécissement aortique / aortic stenosis
> dyspnoea syncope chest | furosemide bisoprolol atorvastatin aspirin | bnp+ hb- trop+
+ m souffle systolique aortique râpeux / a harsh ejection systolic murmur ; f abolition du deuxième
  bruit / an inaudible second heart sound
* echo: f surface aortique à <0.5-0.9> cm² / an aortic valve area of <0.5-0.9> cm² ; m gradient
  moyen de <42-68> mmHg / a mean gradient of <42-68> mmHg
* ctchest: f racine aortique calcifiée / a calcified aortic root
@avblock cardiology pacemaker = m bloc atrioventriculaire [complet|de type Mobitz 2] /
  [complete|Mobitz type 2] atrioventricular block = m bloc atrioventriculaire / atrioventricular
  block
> syncope fatigue dyspnoea falls | ramipril furosemide | bnp+ k+ trop+
+ f bradycardie à <28-42>/min / bradycardia of <28-42>/min ; fp ondes canon jugulaires / cannon
  waves
* ecg: f dissociation atrioventriculaire / atrioventricular dissociation
* holter: fp pauses de <4-9> secondes / pauses of <4-9> seconds
@pericard cardiology = f péricardite aiguë [virale|idiopathique] / acute [viral|idiopathic]
  pericarditis = f péricardite / pericarditis
> sharp fever dyspnoea | aspirin colchicine | crp+ trop+ wbc+
+ m frottement péricardique / a pericardial friction rub
* ecg: m sus-décalage diffus concave du segment ST / widespread saddle-shaped ST elevation
* echo: m épanchement péricardique de <4-18> mm / a pericardial effusion of <4-18> mm
@colon oncology colectomy = m adénocarcinome du côlon [droit|sigmoïde] de stade [III|IV] / stage
  [2:III|IV] adenocarcinoma of the [1:right|sigmoid] colon = m adénocarcinome colique / colonic
  adenocarcinoma
> rectal weight constipation fatigue | oxaliplatin capecitabine ondansetron iron | cea+ hb- ldh+
+ f masse palpable du flanc [droit|gauche] / a palpable mass in the [right|left] flank
* colonoscopy: f tumeur bourgeonnante du côlon [droit|sigmoïde] / a fungating tumour of the
  [right|sigmoid] colon
* ctabdo: m épaississement pariétal tumoral de <24-68> mm / a mural tumour of <24-68> mm ; fp
  adénopathies mésentériques / mesenteric lymphadenopathy
@breast oncology mastectomy female = m carcinome canalaire infiltrant du sein [droit|gauche] /
  invasive ductal carcinoma of the [right|left] breast = m carcinome mammaire / breast carcinoma
> lump fatigue nodes | docetaxel trastuzumab letrozole filgrastim ondansetron | ca153+ neut- hb-
+ m nodule du sein [droit|gauche] de <12-38> mm / a <12-38> mm lump in the [right|left] breast ; f
  adénopathie axillaire mobile / a mobile axillary node
* mammo: f opacité spiculée du sein [droit|gauche] / a spiculated mass in the [right|left] breast ;
  mp foyers de microcalcifications / clustered microcalcifications
* biopsy: m carcinome de grade [2:2|3] avec Ki67 à <15-60/5> % / grade [2:2|3] carcinoma with a Ki67
  of <15-60/5> %
@lung oncology = m adénocarcinome bronchique du lobe supérieur [droit|gauche] métastatique /
  metastatic adenocarcinoma of the [right|left] upper lobe = m adénocarcinome bronchique / lung
  adenocarcinoma
> cough haemoptysis weight bone | pembrolizumab carboplatin pemetrexed folic dexamethasone | ldh+
  ca+ cea+
+ f matité du sommet [droit|gauche] / dullness at the [right|left] apex ; m hippocratisme digital /
  finger clubbing
* ctchest: f masse du lobe supérieur [droit|gauche] de <22-71> mm / a <22-71> mm mass in the
  [right|left] upper lobe
* pet: fp métastases osseuses hypermétaboliques / FDG-avid bone metastases ; m hypermétabolisme
  ganglionnaire médiastinal / FDG-avid mediastinal nodes
@lymphoma oncology = m lymphome diffus à grandes cellules B de stade [II|III|IV] / stage [II|III|IV]
  diffuse large B-cell lymphoma = m lymphome B / B-cell lymphoma
> sweats weight nodes fever | rituximab doxorubicin prednisone filgrastim allopurinol | ldh+ b2m+
  neut- plt-
+ f splénomégalie de <2-6> cm / a spleen palpable <2-6> cm below the costal margin ; fp adénopathies
  cervicales fermes / firm cervical nodes
* pet: m hypermétabolisme ganglionnaire sus- et sous-diaphragmatique / FDG-avid nodes on both sides
  of the diaphragm
* biopsy: f prolifération de grandes cellules CD20 positives / sheets of large CD20-positive cells
@myeloma oncology = m myélome multiple à IgG [kappa|lambda] / IgG [kappa|lambda] multiple myeloma =
  m myélome / myeloma
> bone fatigue pallor weight | bortezomib lenalidomide dexamethasone morphine | mprot+ chains+ ca+
  hb- creat+
+ f douleur à la percussion des épineuses / tenderness over the spine ; f pâleur cutanéomuqueuse /
  marked pallor
* marrow: f plasmocytose médullaire à <18-72> % / marrow plasmacytosis of <18-72> %
* ctchest: fp lésions lytiques vertébrales / lytic vertebral lesions
@pancreas oncology = m adénocarcinome de la [tête|queue] du pancréas / adenocarcinoma of the
  [head|tail] of the pancreas = m cancer du pancréas / pancreatic cancer
> jaundice weight anorexia pruritus | gemcitabine morphine ondansetron enoxaparin | ca199+ bili+
  ggt+ glucose+
+ m ictère cutanéomuqueux / deep jaundice ; f vésicule palpable / a palpable gallbladder
* ctabdo: f masse hypodense de la [tête|queue] du pancréas / a hypodense mass in the [head|tail] of
  the pancreas ; fp métastases hépatiques / liver metastases
@prostate oncology male = m adénocarcinome prostatique de score de Gleason [7|8|9] / Gleason [7|8|9]
  prostatic adenocarcinoma = m cancer de la prostate / prostate cancer
> bone voiding weight | leuprorelin abiraterone prednisone | psa+ hb- ca+
+ m nodule dur du lobe [2:droit|gauche] au toucher rectal / a hard nodule in the [2:right|left] lobe
  on rectal examination
* mripelvis: f lésion PI-RADS [4|5] du lobe [2:droit|gauche] / a PI-RADS [4|5] lesion of the
  [2:right|left] lobe
* biopsy: fp carottes envahies sur <4-11> sites / tumour in <4-11> cores
@stroke neurology = m infarctus cérébral sylvien [gauche|droit] / [left|right] middle cerebral
  artery infarction = m accident vasculaire cérébral / stroke
> weakness aphasia facial confusion | aspirin clopidogrel atorvastatin perindopril | ldl+ glucose+
  hba1c+
+ f hémiparésie [droite|gauche] cotée à <1-4>/5 / a [right|left] hemiparesis graded <1-4>/5 ; m
  signe de Babinski [droit|gauche] / an extensor [right|left] plantar response
* mrihead: m hypersignal de diffusion sylvien [gauche|droit] / restricted diffusion in the
  [left|right] middle cerebral artery territory
* cthead: f hypodensité [gauche|droite] récente / a recent [left|right] hypodensity
@epilepsy neurology = f épilepsie focale temporale [gauche|droite] / [left|right] temporal lobe
  epilepsy = f épilepsie / epilepsy
> seizure bite confusion headache | levetiracetam lamotrigine valproate clonazepam | ck+ vpa-
  lactate+
+ f confusion postcritique / post-ictal confusion ; f plaie latérale de langue / a lateral tongue
  laceration
* eeg: fp pointes-ondes temporales [gauches|droites] / [left|right] temporal spike-and-wave
  discharges
* mrihead: f sclérose hippocampique [gauche|droite] / [left|right] hippocampal sclerosis
@ms neurology = f poussée de sclérose en plaques [rémittente|active] / a relapse of
  [relapsing-remitting|active] multiple sclerosis = f sclérose en plaques / multiple sclerosis
> paraesthesia visual diplopia weakness | methylprednisolone natalizumab fumarate baclofen |
  csfcells+ csfprot+
+ m syndrome pyramidal des membres inférieurs / a bilateral pyramidal syndrome ; f ophtalmoplégie
  internucléaire / internuclear ophthalmoplegia
* mrihead: mp hypersignaux périventriculaires / periventricular hyperintensities ; f prise de
  contraste de <2-7> lésions / enhancement of <2-7> lesions
* lp: fp bandes oligoclonales / oligoclonal bands
@parkinson neurology = f maladie de Parkinson à prédominance [droite|gauche] /
  [right|left]-predominant Parkinson's disease = f maladie de Parkinson / Parkinson's disease
> tremor slowness falls constipation | levodopa pramipexole clonazepam | b12- tsh+
+ f rigidité en roue dentée [droite|gauche] / [right|left] cogwheel rigidity ; f diminution du
  ballant du bras [droit|gauche] / reduced [right|left] arm swing
* mrihead: f absence de lésion vasculaire des noyaux gris / no vascular lesion of the basal ganglia
@subdural neurology burrhole = m hématome sous-dural chronique [droit|gauche] / [right|left] chronic
  subdural haematoma = m hématome sous-dural / subdural haematoma
> headache confusion falls weakness | levetiracetam paracetamol | inr+ plt- na-
+ f pronation de la main [gauche|droite] aux bras tendus / [left|right] pronator drift
* cthead: f collection extra-axiale [droite|gauche] de <11-26> mm / a [right|left] extra-axial
  collection of <11-26> mm ; f déviation de la ligne médiane de <4-12> mm / a midline shift of
  <4-12> mm
@migraine neurology = f migraine avec aura [fréquente|chronique] / [frequent|chronic] migraine with
  aura = f migraine / migraine
> headache photophobia aura nausea | sumatriptan propranolol topiramate | ferritin- na-
+ f allodynie du cuir chevelu / scalp allodynia ; f sensibilité cervicale / neck tenderness
* mrihead: mp hypersignaux punctiformes aspécifiques / non-specific punctate hyperintensities
@myasth neurology = f myasthénie auto-immune [oculaire|généralisée] / [ocular|generalised]
  myasthenia gravis = f myasthénie / myasthenia gravis
> ptosis diplopia dysphagia weakness | pyridostigmine prednisone mycophenolate | achr+
+ m ptosis fatigable [1:unilatéral|bilatéral] / fatigable [unilateral|bilateral] ptosis ; f
  faiblesse des fléchisseurs du cou / neck flexor weakness
* emg: m décrément de <14-45> % à la stimulation répétitive / a <14-45> % decrement on repetitive
  stimulation
* ctchest: f hyperplasie thymique / thymic hyperplasia
@ckd nephrology fistula = f maladie rénale chronique de stade [4|5] / stage [4|5] chronic kidney
  disease = f maladie rénale chronique / chronic kidney disease
> fatigue pruritus cramps oedema | darbepoetin sevelamer alfacalcidol bicarb resin furosemide |
  creat+ egfr- k+ phos+ pth+ hco3- hb-
+ fp lésions de grattage / scratch marks ; fp ecchymoses des avant-bras / bruising of the forearms
* usrenal: mp reins dédifférenciés de <78-92> mm / kidneys of <78-92> mm with poor differentiation
@aki nephrology = f insuffisance rénale aiguë [fonctionnelle|par nécrose tubulaire] de stade KDIGO
  [2|3] / KDIGO stage [2:2|3] acute kidney injury [1:from volume depletion|from tubular necrosis] =
  f insuffisance rénale aiguë / acute kidney injury
> oliguria vomiting diarrhoea confusion | bicarb resin omeprazole | creat+ urea+ k+ hco3- lactate+
+ m pli cutané persistant / reduced skin turgor ; f sécheresse des muqueuses / dry mucous membranes
* usrenal: fp cavités pyélocalicielles fines / undilated pelvicalyceal systems
@nephrotic nephrology = m syndrome néphrotique à [lésions glomérulaires minimes|glomérulonéphrite
  extramembraneuse] / nephrotic syndrome due to [minimal change disease|membranous nephropathy] = m
  syndrome néphrotique / nephrotic syndrome
> oedema foam weight fatigue | prednisone rituximab furosemide irbesartan | uprot+ alb- ldl+
+ mp œdèmes blancs prenant le godet / pitting oedema ; m comblement des culs-de-sac pleuraux / stony
  dullness at both bases
* rbiopsy: mp [pieds de podocytes effacés|dépôts extramembraneux granuleux] / [podocyte foot process
  effacement|granular subepithelial deposits]
* usrenal: mp reins de taille normale / kidneys of normal size
@iga nephrology = f néphropathie à IgA [active|progressive] / [active|progressive] IgA nephropathy =
  f néphropathie à IgA / IgA nephropathy
> haematuria foam flank | irbesartan prednisone dapagliflozin | uprot+ creat+ egfr-
+ f pression artérielle à <148-168>/<88-98> mmHg / a blood pressure of <148-168>/<88-98> mmHg
* rbiopsy: mp dépôts mésangiaux d'IgA / mesangial IgA deposits ; mp croissants cellulaires sur <2-7>
  glomérules / cellular crescents in <2-7> glomeruli
@colic nephrology stent = f colique néphrétique [droite|gauche] obstructive / obstructive
  [right|left] renal colic = f colique néphrétique / renal colic
> flank haematuria vomiting dysuria | ketoprofen tamsulosin paracetamol | creat+ wbc+ uric+
+ f douleur à l'ébranlement lombaire [droit|gauche] / [right|left] renal angle tenderness
* ctabdo: m calcul urétéral [droit|gauche] de <4-12> mm / a <4-12> mm [right|left] ureteric stone ;
  f dilatation pyélocalicielle de <14-28> mm / hydronephrosis of <14-28> mm
@pkd nephrology = f polykystose rénale autosomique dominante PKD[1|2] / autosomal dominant PKD[1|2]
  polycystic kidney disease = f polykystose rénale / polycystic kidney disease
> flank haematuria headache | tolvaptan irbesartan amlodipine | creat+ egfr- hb+
+ mp gros reins palpables / palpable enlarged kidneys
* usrenal: mp kystes corticaux multiples jusqu'à <38-94> mm / multiple cortical cysts up to <38-94>
  mm
@graft nephrology = m rejet [cellulaire|humoral] aigu du greffon rénal / acute
  [cellular|antibody-mediated] kidney transplant rejection = m rejet du greffon / transplant
  rejection
> graft oliguria fever oedema | methylprednisolone tacrolimus mycophenolate prednisone | creat+
  uprot+ tacro-
+ m greffon sensible en fosse iliaque [2:droite|gauche] / a tender graft in the [2:right|left] iliac
  fossa
* usgraft: m index de résistance à <0.78-0.92> / a resistive index of <0.78-0.92>
* rbiopsy: f [tubulite et infiltrat interstitiel|capillarite péritubulaire C4d positive] /
  [tubulitis with interstitial infiltrate|C4d-positive peritubular capillaritis]
@pneumonia infectious = f pneumopathie aiguë communautaire du lobe [inférieur|supérieur]
  [droit|gauche] / community-acquired pneumonia of the [2:right|left] [1:lower|upper] lobe = f
  pneumopathie / pneumonia
> fever cough pleuritic chills sputum | coamoxiclav azithromycin paracetamol | crp+ wbc+ pct+ pao2-
+ mp crépitants du lobe [inférieur|supérieur] [droit|gauche] / crackles over the [2:right|left]
  [1:lower|upper] lobe ; m souffle tubaire / bronchial breathing
* cxr: f opacité alvéolaire du lobe [inférieur|supérieur] [droit|gauche] / consolidation of the
  [2:right|left] [1:lower|upper] lobe
* cultures: m Streptococcus pneumoniae sensible à la pénicilline / penicillin-sensitive
  Streptococcus pneumoniae
@copd infectious = f exacerbation de BPCO de stade [GOLD 2|GOLD 3|GOLD 4] / an exacerbation of [GOLD
  2|GOLD 3|GOLD 4] COPD = f BPCO / COPD
> dyspnoea wheeze sputum cough | salbutamol tiotropium prednisone coamoxiclav | paco2+ pao2- crp+
  wbc+
+ mp sibilants diffus / widespread wheeze ; f distension thoracique / a hyperinflated chest
* spiro: m VEMS à <28-58> % de la théorique / an FEV1 of <28-58> % predicted
* cxr: f distension avec aplatissement des coupoles / hyperinflation with flattened diaphragms
@tb infectious = f tuberculose pulmonaire [bacillifère|cavitaire] du sommet [droit|gauche] /
  [smear-positive|cavitary] pulmonary tuberculosis of the [right|left] apex = f tuberculose
  pulmonaire / pulmonary tuberculosis
> sweats weight cough haemoptysis fever | isoniazid rifampicin ethambutol pyrazinamide | crp+ alt+
  alb-
+ mp râles du sommet [2:droit|gauche] / crackles at the [2:right|left] apex
* ctchest: f caverne apicale [2:droite|gauche] de <14-46> mm / a <14-46> mm [2:right|left] apical
  cavity ; mp micronodules en arbre à bourgeons / tree-in-bud nodules
* broncho: mp bacilles acido-alcoolorésistants à l'examen direct / acid-fast bacilli on microscopy
@endoc infectious = f endocardite [mitrale|aortique] à [Staphylococcus aureus|Streptococcus
  gallolyticus] / [2:Staphylococcus aureus|Streptococcus gallolyticus] endocarditis of the
  [1:mitral|aortic] valve = f endocardite / endocarditis
> fever chills fatigue weight | cloxacillin gentamicin vancomycin | crp+ pct+ hb- wbc+
+ m souffle [mitral|aortique] d'apparition récente / a new [mitral|aortic] regurgitant murmur ; m
  purpura pétéchial des chevilles / a petechial ankle rash
* toe: f végétation [mitrale|aortique] de <6-19> mm / a <6-19> mm vegetation on the [mitral|aortic]
  valve
* cultures: m [2:Staphylococcus aureus|Streptococcus gallolyticus] sur <3-6> flacons /
  [2:Staphylococcus aureus|Streptococcus gallolyticus] in <3-6> bottles
@pyelo infectious = f pyélonéphrite aiguë [droite|gauche] à Escherichia coli / acute [right|left]
  Escherichia coli pyelonephritis = f pyélonéphrite / pyelonephritis
> fever chills flank dysuria | ceftriaxone gentamicin paracetamol | crp+ wbc+ pct+ lactate+
+ f douleur de la fosse lombaire [droite|gauche] / [right|left] renal angle tenderness
* urine: m Escherichia coli à 10^<4-7> UFC/mL / Escherichia coli at 10^<4-7> CFU/mL
* ctabdo: mp foyers hypodenses du rein [droit|gauche] / hypodense foci in the [right|left] kidney
@empyema infectious drain = m empyème pleural [droit|gauche] / a [right|left] pleural empyema = m
  empyème / empyema
> fever pleuritic dyspnoea sweats | piptazo metronidazole paracetamol | crp+ wbc+ alb- pct+
+ f matité de la base [droite|gauche] / stony dullness at the [right|left] base ; f abolition du
  murmure vésiculaire / absent breath sounds
* ctchest: f collection pleurale cloisonnée [droite|gauche] de <32-88> mm / a <32-88> mm loculated
  [right|left] pleural collection
@cellul infectious = f dermohypodermite bactérienne de la jambe [droite|gauche] / cellulitis of the
  [right|left] leg = f dermohypodermite / cellulitis
> redness fever chills | cloxacillin pristinamycin paracetamol | crp+ wbc+ ck+
+ m placard inflammatoire de <8-24> cm / a warm plaque of <8-24> cm ; m intertrigo interorteil /
  interdigital intertrigo
* cultures: m Streptococcus pyogenes sur <1-2> flacons / Streptococcus pyogenes in <1-2> bottles
@pcp infectious = f pneumocystose pulmonaire révélant une infection par le VIH / Pneumocystis
  pneumonia revealing HIV infection = f pneumocystose / Pneumocystis pneumonia
> fever cough dyspnoea weight | cotrimoxazole prednisone dolutegravir | cd4- ldh+ pao2-
+ f candidose buccale / oral candidiasis ; f polypnée à <26-38>/min / tachypnoea of <26-38>/min
* ctchest: m verre dépoli bilatéral diffus / bilateral ground-glass change
* broncho: mp kystes de Pneumocystis jirovecii / Pneumocystis jirovecii cysts
"""
